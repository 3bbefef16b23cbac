"""The last step of a run in SVG: what the timeline of the card leaves in a saved notebook."""

from __future__ import annotations

from collections import defaultdict

from tnt_notebook.dashboard.step_layout import FAINT, RankRow, heading, kinds_in, rank_rows
from tnt_notebook.telemetry.kinds import BOX_KINDS
from tnt_notebook.telemetry.step_trace import StepTrace

MOST_ROWS = 16
MOST_BOXES = 1500  # 20 bytes each
WIDTH = 2000  # units of the picture: half a pixel of most screens
GAP = 4  # units, so that equal neighbours are two


def step_html(trace: StepTrace | None) -> str:
    """The elements of ``widgets/timeline.js``, without what moves; at most 60 kB."""
    if trace is None or not trace["rows"]:
        return ""
    rows = "".join(
        f'<div class="tnt-rank"><span class="tnt-rank-name">rank {row.rank}</span>'
        f'{_svg(row, trace["seconds"])}<span class="tnt-share">{row.idle:.0%} idle</span></div>'
        for row in rank_rows(trace, MOST_BOXES, MOST_ROWS)
    )
    legend = "".join(
        f'<span><i class="tnt-letter" style="background: {kind.colour}; '
        f'color: {kind.ink or "inherit"}">{kind.letter}</i>{kind.words}</span>'
        for kind in kinds_in(trace)
    )
    return (
        '<div class="tnt-timeline"><div class="tnt-line tnt-heading">'
        f'<span>{heading(trace)}</span></div><div class="tnt-steps">{rows}</div>'
        f'<div class="tnt-legend">{legend}</div></div>'
    )


def _svg(row: RankRow, seconds: float) -> str:
    """The boxes of a rank; all of a colour are one path."""
    paths: dict[tuple[str, bool], str] = defaultdict(str)
    for box in row.boxes:
        x, end = (round(WIDTH * time / seconds) for time in (box.begin, box.end))
        y, height = (17, 5) if BOX_KINDS[box.kind].role == "beside" else (0, 16)
        width = max(1, end - x - (GAP if end - x > 3 * GAP else 0))
        paths[box.kind, row.is_faint(box)] += f"M{x} {y}h{width}v{height}h-{width}"
    # Those that may lie under others first.
    drawn = "".join(
        f'<path fill="{BOX_KINDS[kind].colour}" opacity="{FAINT if faint else 1}" d="{path}"/>'
        for (kind, faint), path in sorted(paths.items(), key=lambda p: not BOX_KINDS[p[0][0]].below)
    )
    return (
        f'<svg viewBox="0 0 {WIDTH} 22" preserveAspectRatio="none" shape-rendering="crispEdges">'
        f"{drawn}</svg>"
    )
