"""A step on all ranks, predicted or measured, in plotly: a row per rank, a box per action.

::

    rank 0   |0|1|2|.....| 0 | 1 | 2 |      numbers are those of micro-batches;
               ==                ====       messages are in a thin row beneath;
    rank 1     |0| 0 |1| 1 |2| 2 |          grey is idle
                    ms
"""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import Any

import plotly.graph_objects as go

from tnt_notebook.dashboard.grid import Panel
from tnt_notebook.dashboard.planned import idle
from tnt_notebook.dashboard.rows import lay_out, lay_out_rows, row_height, scale_of
from tnt_notebook.dashboard.titles import lines_of, swatch
from tnt_notebook.dashboard.wording import plural, short_time
from tnt_notebook.plan.simulate import Timeline
from tnt_notebook.telemetry.kinds import BOX_KINDS
from tnt_notebook.telemetry.step_trace import (
    ACTIONS,
    BESIDE,
    Box,
    StepTrace,
    boxes,
    of_boxes,
)
from tnt_notebook.telemetry.thin import spread

#: Of more, each is told by its colour and its place only,
MOST_BOXES = 1500
#: and of still more, some ranks stand for all: they would make the notebook large.
MOST_PLAIN_BOXES = 7000

IDLE = "rgba(128,128,128,0.18)"
_FADED = 0.62  # opacity of a rank's second stage


def figure_of(step: StepTrace, measured: bool = True) -> go.Figure:
    """When each rank does what in a step.

    Returns:
        A figure of less than 300 kB in JSON.
    """
    shown = ranks_shown(step)
    unit, factor = scale_of(step["seconds"])
    figure = go.Figure()
    draw(figure, step, shown, factor)
    lay_out(figure, len(shown), textwrap.wrap(_title(step, shown, measured), 110), unit)
    figure.update_layout(
        barmode="overlay",
        hovermode="closest",
        uniformtext={"minsize": 8, "mode": "hide"},
    )
    return figure


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


def ranks_shown(step: StepTrace) -> list[int]:
    """Those that have a row: not all where there are too many boxes."""
    ranks = [row["rank"] for row in step["rows"]]
    room = max(2, MOST_PLAIN_BOXES * len(ranks) // max(1, _count(step)))
    return [ranks[i] for i in spread(len(ranks), room)]


def draw(
    figure: go.Figure, step: StepTrace, shown: Sequence[int], factor: float, row: int | None = None
) -> None:
    """Draws boxes into a figure, or a row of its panels.

    Args:
        shown: ranks that have a row.
        factor: units of the axis in a second.
    """
    column = None if row is None else 1
    some = [box for box in boxes(step) if box.rank in set(shown)]
    beside = any(box.kind in BESIDE for box in some)
    of_rank = _idle_by_rank(step)
    figure.add_bar(
        y=[f"rank {rank}" for rank in shown],
        x=[_short(factor * step["seconds"])] * len(shown),
        name="idle",
        orientation="h",
        **_place(False, beside),
        marker={"color": IDLE, "line": {"width": 0}},
        hovertemplate=[
            f"rank {rank} is idle for {of_rank[rank]:.0%} of a step<extra></extra>"
            for rank in shown
        ],
        legendrank=2000,  # the last
        row=row,
        col=column,
    )
    first = {box.rank: box.stage for box in sorted(some, key=lambda box: -box.stage)
             if box.kind in ACTIONS}  # fmt: skip
    for kind in _kinds(step):
        if own := [box for box in some if box.kind == kind]:
            bar = _bar(kind, own, factor) | _place(kind in BESIDE, beside)
            if len(some) <= MOST_BOXES:
                bar |= _in_full(kind, own, first)
            figure.add_bar(**bar, row=row, col=column)
    figure.update_xaxes(range=[0, 1.002 * factor * step["seconds"]], row=row, col=column)


def panel(step: StepTrace) -> Panel:
    """The last step among other panels; its title is the legend, too."""
    shown = ranks_shown(step)
    unit, factor = scale_of(step["seconds"])

    def draw_it(figure: go.Figure, row: int) -> None:
        draw(figure, step, shown, factor, row)
        lay_out_rows(figure, unit, row)

    which = "" if len(shown) == step["ranks"] else f", {len(shown)} of them shown"
    return Panel(
        [f"<b>the last step</b>: {_in_words(step)}{which}<br>{_legend(step)}"],
        row_height(len(shown)) * len(shown),
        draw_it,
    )


def _legend(step: StepTrace) -> str:
    words = [swatch(BOX_KINDS[kind].words, BOX_KINDS[kind].colour) for kind in _kinds(step)]
    return lines_of([*words, swatch("idle", IDLE)], 90)


def _in_words(step: StepTrace) -> str:
    """What it is a step of, and how much of it ranks are idle."""
    ranks = plural(step["ranks"], "rank")
    words = f"{short_time(step['seconds'])} on {ranks}"
    if "schedule" in step:
        micro = plural(step.get("micro_batches", 1), "micro-batch", "micro-batches")
        words = f"{step['schedule']}, {micro} on {ranks}"
    formula = f", by the formula for {step['formula']:.0%}" if "formula" in step else ""
    return f"{words}, idle for {idle(step)['bubble']:.0%}{formula}"


def _idle_by_rank(step: StepTrace) -> dict[int, float]:
    return dict(zip((row["rank"] for row in step["rows"]), idle(step)["idle"], strict=True))


def _count(step: StepTrace) -> int:
    return sum(len(row["kinds"]) for row in step["rows"])


def _kinds(step: StepTrace) -> list[str]:
    """The kinds of boxes that there are, in the order of a legend."""
    there = {kind for row in step["rows"] for kind in row["kinds"]}
    return [kind for kind in BOX_KINDS if kind in there]


def _place(is_beside: bool, beside: bool) -> dict[str, float]:
    """Where in the row of a rank a bar is: all of it, or with messages beneath the others."""
    if not beside:
        return {"offset": -0.42, "width": 0.84}
    return {"offset": 0.21, "width": 0.2} if is_beside else {"offset": -0.42, "width": 0.6}


def _bar(kind: str, own: Sequence[Box], factor: float) -> dict[str, Any]:
    """Boxes of one kind."""
    return {
        "y": [f"rank {box.rank}" for box in own],
        "base": [_short(factor * box.begin) for box in own],
        "x": [_short(factor * (box.end - box.begin)) for box in own],
        "name": BOX_KINDS[kind].words,
        "orientation": "h",
        "marker": {"color": BOX_KINDS[kind].colour, "line": {"width": 0}},
        "hovertemplate": "%{y}, from %{base}<extra>%{fullData.name}</extra>",
    }


def _in_full(kind: str, own: Sequence[Box], first: dict[int, int]) -> dict[str, Any]:
    """What tells boxes of one kind apart: their numbers, and that later stages are faint."""
    marker: dict[str, Any] = {
        "color": BOX_KINDS[kind].colour,
        "line": {"color": "rgba(255,255,255,0.7)", "width": 0.5 if kind in BESIDE else 1},
    }
    text = {}
    if kind in ACTIONS:
        marker["opacity"] = [1 if box.stage == first[box.rank] else _FADED for box in own]
        text = {
            "text": [str(box.number) for box in own],
            "textposition": "inside",
            "insidetextanchor": "middle",
            "textangle": 0,
            "textfont": {"color": BOX_KINDS[kind].ink, "size": 11},
        }
    return {
        "marker": marker,
        "customdata": [
            f"{BOX_KINDS[kind].detail.format(number=box.number, stage=box.stage)}<br>"
            f"from {short_time(box.begin)} to {short_time(box.end)}: "
            f"{short_time(box.end - box.begin)}"
            for box in own
        ],
        "hovertemplate": "%{customdata}<extra></extra>",
        **text,
    }


def _title(step: StepTrace, shown: Sequence[int], measured: bool) -> str:
    how = "measured" if measured else "predicted"
    if "schedule" in step:
        micro = plural(step.get("micro_batches", 1), "micro-batch", "micro-batches")
        what = f"<b>a step of {step['schedule']}</b>, as {how}: {micro} on"
    else:
        what = f"<b>a step</b>, as {how}: {short_time(step['seconds'])} on"
    which = "" if len(shown) == step["ranks"] else f", {len(shown)} of them shown"
    stages = [{s for k, s in zip(row["kinds"], row["stages"], strict=True) if k in ACTIONS}
              for row in step["rows"]]  # fmt: skip
    faded = ", a rank's second stage is faint" if any(len(own) > 1 for own in stages) else ""
    formula = f" (by the formula for {step['formula']:.0%})" if "formula" in step else ""
    return (
        f"{what} {plural(step['ranks'], 'rank')}{which}, idle for {idle(step)['bubble']:.0%} of it"
        f"{formula}{faded}"
    )


def _short(value: float) -> float:
    """Five digits: more would only make the notebook larger."""
    return float(f"{value:.5g}")
