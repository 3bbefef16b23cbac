"""A step on all ranks, predicted or measured, in plotly: a row per rank, a box per action.

::

    rank 0   |0|1|2|.....| 0 | 1 | 2 |      numbers are those of micro-batches;
               ==                ====       messages are in a thin row beneath;
    rank 1     |0| 0 |1| 1 |2| 2 |          grey is idle
                    ms
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import plotly.graph_objects as go

from tnt_notebook.dashboard.figures.panels import (
    Panel,
    drawn,
    height_of,
    lay_out_rows,
    lines_of,
    scale_of,
    short,
    swatch,
)
from tnt_notebook.dashboard.figures.step_layout import (
    FAINT,
    RankRow,
    idle,
    kinds_in,
    rank_rows,
)
from tnt_notebook.dashboard.figures.wording import plural, short_time, which_step
from tnt_notebook.plan.simulate import Timeline
from tnt_notebook.telemetry.kinds import Kind
from tnt_notebook.telemetry.step_trace import Box, StepTrace, extent_s, of_boxes, words_of

#: Of more, each is told by its colour and its place only,
MOST_BOXES = 1500
#: and of still more, some ranks stand for all: they would make the notebook large.
MOST_PLAIN_BOXES = 7000

IDLE = "rgba(128,128,128,0.1)"


def figure_of(step: StepTrace, measured: bool = True) -> go.Figure:
    """When each rank does what in a step.

    Returns:
        A figure of less than 300 kB in JSON.
    """
    return drawn([panel(step, f"<b>a step</b>, as {'measured' if measured else 'predicted'}")])


def panel(step: StepTrace, name: str = "") -> Panel:
    """The same, among other panels."""
    name = name or f"<b>the {which_step(step)}</b>"
    rows = rank_rows(step, MOST_PLAIN_BOXES)
    seconds = extent_s(step)
    unit, factor = scale_of(seconds)

    def draw(figure: go.Figure, row: int) -> None:
        for bar in _bars(step, rows, factor):
            figure.add_bar(**bar, orientation="h", row=row, col=1)
        lay_out_rows(figure, row, unit, 1.002 * factor * seconds)

    legend = [swatch(kind.words, kind.colour) for kind in kinds_in(step)] + [swatch("idle", IDLE)]
    if any(row.is_faint(box) for row in rows for box in row.boxes):
        legend.append("faint: a rank's second stage")
    title = f"{name}: {_in_words(step, rows)}<br>{lines_of(legend)}"
    return Panel([title], height_of(len(rows)), draw)


def trace_of(timeline: Timeline) -> StepTrace:
    """A step of a pipeline, planned or measured, as boxes."""
    return of_boxes(
        [Box(rank, a.kind, a.stage, a.micro, begin, end) for rank, a, begin, end in timeline.spans],
        time=0.0,
        clock_error=0.0,
        pipeline=timeline.ranks,
        ranks=timeline.ranks,
        schedule=timeline.schedule,
        micro_batches=timeline.micro_batches,
    )


def _bars(step: StepTrace, rows: Sequence[RankRow], factor: float) -> list[dict[str, Any]]:
    """How idle ranks are, and the boxes of each kind; a second has `factor` units of the axis."""
    kinds = kinds_in(step)
    two_lanes = any(kind.role == "beside" for kind in kinds)
    in_full = sum(len(own.boxes) for own in rows) <= MOST_BOXES
    behind = {
        "y": [f"rank {own.rank}" for own in rows],
        "x": [short(factor * extent_s(step))] * len(rows),
        "name": "idle",
        "marker": {"color": IDLE, "line": {"width": 0}},
        "hovertemplate": [
            f"rank {own.rank} is idle for {own.idle:.0%} of a step<extra></extra>" for own in rows
        ],
        **_lane(False, two_lanes),
    }
    bars = [behind]
    for kind in kinds:
        found = [(own, box) for own in rows for box in own.boxes if box.kind == kind.letter]
        if found:
            bar = _plain(kind, [box for _, box in found], factor)
            bar |= _lane(kind.role == "beside", two_lanes)
            bars.append(bar | _in_full(kind, found, step) if in_full else bar)
    return bars


def _lane(is_beside: bool, two_lanes: bool) -> dict[str, float]:
    """Where in the row of a rank a bar is: all of it, or with messages beneath the others."""
    if not two_lanes:
        return {"offset": -0.42, "width": 0.84}
    return {"offset": 0.21, "width": 0.2} if is_beside else {"offset": -0.42, "width": 0.6}


def _plain(kind: Kind, boxes: Sequence[Box], factor: float) -> dict[str, Any]:
    """Boxes of one kind."""
    return {
        "y": [f"rank {box.rank}" for box in boxes],
        "base": [short(factor * box.begin) for box in boxes],
        "x": [short(factor * (box.end - box.begin)) for box in boxes],
        "name": kind.words,
        "marker": {"color": kind.colour, "line": {"width": 0}},
        "hovertemplate": "%{y}, from %{base}<extra>%{fullData.name}</extra>",
    }


def _in_full(kind: Kind, boxes: Sequence[tuple[RankRow, Box]], step: StepTrace) -> dict[str, Any]:
    """What tells boxes of one kind apart: their numbers, and that later stages are faint."""
    line = {"color": "rgba(255,255,255,0.7)", "width": 0.5 if kind.role == "beside" else 1}
    full: dict[str, Any] = {
        "marker": {"color": kind.colour, "line": line},
        "customdata": [
            f"{words_of(box, step)}<br>from {short_time(box.begin)} to {short_time(box.end)}: "
            f"{short_time(box.end - box.begin)}"
            for _, box in boxes
        ],
        "hovertemplate": "%{customdata}<extra></extra>",
    }
    if kind.role == "action":
        full["marker"]["opacity"] = [FAINT if row.is_faint(box) else 1 for row, box in boxes]
        full |= {
            "text": [str(box.number) for _, box in boxes],
            "textposition": "inside",
            "insidetextanchor": "middle",
            "textangle": 0,
            "textfont": {"color": kind.ink, "size": 11},
        }
    return full


def _in_words(step: StepTrace, rows: Sequence[RankRow]) -> str:
    """What it is a step of, and how much of it ranks are idle."""
    what = short_time(step["seconds"])
    if "schedule" in step:
        micro = plural(step.get("micro_batches", 1), "micro-batch", "micro-batches")
        what = f"{step['schedule']}, {micro}"
    shown = "" if len(rows) == step["ranks"] else f", {len(rows)} of them shown"
    formula = f", by the formula for {step['formula']:.0%}" if "formula" in step else ""
    ranks = plural(step["ranks"], "rank")
    return f"{what} on {ranks}{shown}, idle for {idle(step)['bubble']:.0%}{formula}"
