"""Where the time of a step goes, as the card shows it, live and saved."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from statistics import fmean
from typing import Any

from tnt_notebook import telemetry
from tnt_notebook.dashboard.summary import RANKS_WITH_A_LINE
from tnt_notebook.dashboard.wording import short_time
from tnt_notebook.telemetry import PARTS, Frame
from tnt_notebook.telemetry.limit import shares


def time_of(frames: Sequence[Frame]) -> dict[str, Any]:
    """``{"step": "4.25 ms", "limit": ..., "rows": [["rank 0", {"work": 0.7, ...}], ...]}``; of many
    ranks one row for all. Empty without a breakdown.
    """
    of_ranks = telemetry.breakdowns(frames)
    if not of_ranks:
        return {}
    one_by_one = len(of_ranks) <= RANKS_WITH_A_LINE
    shown = (
        [(f"rank {rank}", [breakdown]) for rank, breakdown in enumerate(of_ranks)]
        if one_by_one
        else [("all ranks", list(of_ranks))]
    )
    return {
        "step": short_time(fmean(b.step for b in of_ranks)),
        "limit": telemetry.limit_of(frames),
        "rows": [
            [name, {part: round(share, 4) for part, share in shares(some).items()}]
            for name, some in shown
        ],
    }


def time_html(time: dict[str, Any]) -> str:
    """The elements of ``time`` in ``widgets/parts.js``."""
    if not time:
        return ""
    rows = "".join(
        f'<div class="tnt-rank"><span class="tnt-rank-name">{name}</span><div class="tnt-parts">'
        + "".join(
            f'<div data-part="{part}" style="width: {100 * part_of[part]:.1f}%"></div>'
            for part in PARTS
        )
        + f'</div><span class="tnt-share">{part_of["work"]:.0%} work</span></div>'
        for name, part_of in time["rows"]
    )
    legend = "".join(f'<span data-part="{part}">{part}</span>' for part in PARTS)
    return (
        '<div class="tnt-time"><div class="tnt-line tnt-heading"><span>Where a step goes</span>'
        f'<span class="tnt-total">{time["step"]}</span></div>'
        f'<p class="tnt-limit">{escape(time["limit"])}</p>'
        f'<div class="tnt-ranks">{rows}</div><div class="tnt-legend">{legend}</div></div>'
    )
