"""The last step of a run as a still picture in SVG: what the timeline of the card leaves behind."""

from __future__ import annotations

from collections import defaultdict

from tnt_notebook.dashboard.planned import idle
from tnt_notebook.dashboard.wording import short_time
from tnt_notebook.telemetry.kinds import BOX_KINDS
from tnt_notebook.telemetry.step_trace import ACTIONS, BESIDE, RankTrace, StepTrace
from tnt_notebook.telemetry.thin import spread

MOST_ROWS = 16
MOST_BOXES = 1500  # 20 bytes each
WIDTH = 2000  # units of the picture: half a pixel of most screens
GAP = 4  # units, so that equal neighbours are two
FAINT = 0.62  # opacity of the boxes of a rank's second stage


def step_html(trace: StepTrace | None) -> str:
    """The elements of ``widgets/timeline.js``, without what moves; at most 60 kB."""
    if trace is None or not trace["rows"]:
        return ""
    of = idle(trace)
    formula = ""
    if "formula" in trace:
        formula = f", by the formula of {trace.get('schedule')} {trace['formula']:.0%}"
    boxes = sum(len(row["kinds"]) for row in trace["rows"])
    room = min(MOST_ROWS, max(1, MOST_BOXES * len(trace["rows"]) // max(1, boxes)))
    rows = "".join(
        f'<div class="tnt-rank"><span class="tnt-rank-name">rank {row["rank"]}</span>'
        f'{_svg(row, trace)}<span class="tnt-share">{share:.0%} idle</span></div>'
        for row, share in (
            (trace["rows"][i], of["idle"][i]) for i in spread(len(trace["rows"]), room)
        )
    )
    shown = "".join(row["kinds"] for row in trace["rows"])
    legend = "".join(
        f'<span><i class="tnt-letter" style="background: {kind.colour}; '
        f'color: {kind.ink or "inherit"}">{letter}</i>{kind.words}</span>'
        for letter, kind in BOX_KINDS.items()
        if letter in shown
    )
    return (
        '<div class="tnt-timeline"><div class="tnt-line tnt-heading"><span>'
        f"Last step {short_time(trace['seconds'])} · idle {of['bubble']:.0%}{formula}</span></div>"
        f'<div class="tnt-steps">{rows}</div><div class="tnt-legend">{legend}</div></div>'
    )


def _svg(row: RankTrace, trace: StepTrace) -> str:
    """The boxes of a rank; all of a colour are one path."""
    units = WIDTH * trace["tick"] / trace["seconds"]
    stages = zip(row["stages"], row["kinds"], strict=True)
    first = min((stage for stage, kind in stages if kind in ACTIONS), default=0)
    paths: dict[tuple[str, bool], str] = defaultdict(str)
    columns = (row["kinds"], row["stages"], row["begins"], row["lengths"])
    for kind, stage, begin, length in zip(*columns, strict=True):
        x, end = round(begin * units), round((begin + length) * units)
        y, height = (17, 5) if kind in BESIDE else (0, 16)
        gap = GAP if end - x > 3 * GAP else 0
        width = max(1, end - x - gap)
        faint = kind in ACTIONS and stage != first
        paths[kind, faint] += f"M{x} {y}h{width}v{height}h-{width}"
    drawn = "".join(
        f'<path fill="{BOX_KINDS[kind].colour}" opacity="{FAINT if faint else 1}" d="{path}"/>'
        for (kind, faint), path in sorted(
            paths.items(), key=lambda item: not BOX_KINDS[item[0][0]].below
        )
    )
    return (
        f'<svg viewBox="0 0 {WIDTH} 22" preserveAspectRatio="none" shape-rendering="crispEdges">'
        f"{drawn}</svg>"
    )
