"""The card as it stood at the end of a run, in HTML: the elements of ``widgets/card.js``."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from html import escape
from typing import Any

from tnt_notebook import telemetry
from tnt_notebook.dashboard.card.elements import div, entry, heading, row, span
from tnt_notebook.dashboard.card.run_picture import run_html
from tnt_notebook.dashboard.card.traceback import folded
from tnt_notebook.dashboard.figures import step_layout
from tnt_notebook.dashboard.figures.summary import metric_pairs, notes_of, other_runs, whole_run
from tnt_notebook.dashboard.figures.wording import clock, number
from tnt_notebook.telemetry import PARTS, Frame, State
from tnt_notebook.telemetry.activities import Ribbon
from tnt_notebook.telemetry.kinds import BOX_KINDS
from tnt_notebook.telemetry.step_trace import StepTrace, extent_s

MOST_ROWS = 16
MOST_BOXES = 1500  # 20 bytes each
WIDTH = 2000  # units of the picture: half a pixel of most screens
GAP = 4  # units, so that equal neighbours are two


def card_html(
    title: str,
    frames: Sequence[Frame],
    state: State,
    error: str | None,
    ribbon: Ribbon,
    traceback: str = "",
) -> str:
    """The inside of the card."""
    run = telemetry.main_run(frames)
    took = clock(ribbon.seconds)
    diverged = run[-1].get("diverged") if run else None
    parts = [
        f'<div class="tnt-header"><div class="tnt-title" role="heading" aria-level="3">'
        f'{escape(title)}</div><span class="tnt-pill" data-state="{state}">{state}</span></div>',
        div("line", span("where", _where(run)), span("when", f"took {took}")),
        *(div("caption", escape(note)) for note in notes_of(run) if note != diverged),
        *(
            f'<p class="tnt-error">{escape(said)}</p>'
            for said in (diverged, ribbon.meters.warning, error)
            if said
        ),
        folded(traceback),
        _metrics_html(run),
        *(div("caption", escape(line)) for line in other_runs(frames)),
        run_html(ribbon, frames),
        step_html(telemetry.median_step(run)),
        _time_html(step_layout.time_of(run)),
        div("caption", escape(whole_run(run))) if run else "",
    ]
    return "".join(parts)


def step_html(trace: StepTrace | None) -> str:
    """A step; at most 60 kB."""
    if trace is None or not trace["rows"]:
        return ""
    rows = [
        row(f"rank {own.rank}", _svg(own, extent_s(trace)), "share", f"{own.idle:.0%} idle")
        for own in step_layout.rank_rows(trace, MOST_BOXES, MOST_ROWS)
    ]
    legend = [entry(k.words, k.colour, k.letter, k.ink) for k in step_layout.kinds_in(trace)]
    return div(
        "timeline",
        heading(step_layout.heading(trace)),
        div("steps", *rows),
        div("legend", *legend),
    )


def _where(frames: Sequence[Frame]) -> str:
    if not frames or not frames[-1]["epoch"]:
        return "no step was done"
    last = frames[-1]
    step = f"step {last['step']:,}" + (f" of {last['steps']:,}" if last["steps"] else "")
    if last["phase"] != "fit":
        return f"{last['phase']} · {step}"
    return f"epoch {last['epoch']:,} of {last['epochs']:,} · {step}"


def _metrics_html(frames: Sequence[Frame]) -> str:
    tiles = [
        div(
            "tile",
            div("name", escape(name.replace("_", " "))),
            div("number", number(value)),
            *(div("validation", f"validation {number(v)}") for v in validation.values()),
        )
        for name, value, validation in metric_pairs(frames)
    ]
    return div("metrics", *tiles) if tiles else ""


def _time_html(time: dict[str, Any]) -> str:
    if not time:
        return ""
    rows = []
    for name, share in time["rows"]:
        bars = (
            f'<div style="background: {part.colour}; width: {share[one]:.1%}"></div>'
            for one, part in PARTS.items()
        )
        rows.append(row(name, div("parts", *bars), "share", f"{share['work']:.0%} work"))
    return div(
        "time",
        heading("Where a step goes", time["step"]),
        f'<p class="tnt-limit">{escape(time["limit"])}</p>',
        div("ranks", *rows),
        div("legend", *(entry(name, PARTS[name].colour) for name in _parts_in(time["rows"]))),
    )


def _parts_in(rows: list[Any]) -> list[str]:
    """The parts of a legend."""
    there = {one for _, share in rows for one, s in share.items() if s}
    return [name for name, part in PARTS.items() if name in there or not part.rare]


def _svg(row: step_layout.RankRow, seconds: float) -> str:
    """The boxes of a rank; all of a colour are one path."""
    paths: dict[tuple[str, bool], str] = defaultdict(str)
    for box in row.boxes:
        x, end = (round(WIDTH * time / seconds) for time in (box.begin, box.end))
        y, height = (17, 5) if BOX_KINDS[box.kind].role == "beside" else (0, 16)
        width = max(1, end - x - (GAP if end - x > 3 * GAP else 0))
        paths[box.kind, row.is_faint(box)] += f"M{x} {y}h{width}v{height}h-{width}"
    drawn = ""
    # Those that may lie under others first.
    for kind, faint in sorted(paths, key=lambda path: not BOX_KINDS[path[0]].below):
        opacity = step_layout.FAINT if faint else 1
        fill, path = BOX_KINDS[kind].colour, paths[kind, faint]
        drawn += f'<path fill="{fill}" opacity="{opacity}" d="{path}"/>'
    sharp = 'preserveAspectRatio="none" shape-rendering="crispEdges" aria-hidden="true"'
    return f'<svg viewBox="0 0 {WIDTH} 22" {sharp}>{drawn}</svg>'
