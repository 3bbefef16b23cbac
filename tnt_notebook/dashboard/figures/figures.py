"""A run in plotly, from its frames; its curves stay in a notebook, below the card.

::

    +----------+----------+
    |   loss   | metrics  |   per epoch, or over time where there are too few epochs
    +----------+----------+
    | samples per second  |   a line per rank where ranks differ, a heat map for many
    +---------------------+
    | the median step     |   box by box
    +---------------------+
    | where it goes       |
    +---------------------+
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import cycle
from statistics import fmean

import plotly.graph_objects as go

from tnt_notebook import telemetry
from tnt_notebook.dashboard.figures import breakdown, rates, step_figure
from tnt_notebook.dashboard.figures.panels import (
    OKABE_ITO,
    Panel,
    add_line,
    drawn,
    line_of,
    lines_of,
    word,
)  # fmt: skip
from tnt_notebook.telemetry import Frame, thinned

RANKS_WITH_A_LINE = 16
MAX_POINTS = 250
MAX_HEAT_ROWS = 64
HEIGHT = 186  # pixels of a panel
PANEL_TITLE = 34  # characters in a line of the title of half the width

Curves = dict[str, tuple[list[float], list[float | None]]]
"""Name of a metric: epochs or seconds, and its values there."""


def run_figure(frames: Sequence[Frame]) -> go.Figure:
    """All that there is to see of one run.

    Args:
        frames: of one run in order, at least one. What they say nothing about is left out.

    Returns:
        A figure of less than 500 kB in JSON; without a step and where it goes less than 100 kB,
        whatever the number of ranks and frames.
    """
    panels = [*_metric_panels(frames), throughput_panel(frames)]
    if (step := telemetry.median_step(frames)) is not None:
        panels.append(step_figure.panel(step))
    if of_ranks := telemetry.breakdowns(frames):
        panels.append(breakdown.panel(of_ranks))
    return drawn(panels)


def metric_figure(frames: Sequence[Frame]) -> go.Figure | None:
    """Loss and metrics of one run alone, for beside its card, which shows the rest; None where it
    has none."""
    panels = _metric_panels(frames)
    return drawn(panels) if panels else None


def _metric_panels(frames: Sequence[Frame]) -> list[Panel]:
    axis, curves = metric_curves(frames)
    curves = {name: curve for name, curve in curves.items() if any(map(_is_drawn, curve[1]))}
    losses = {name: curve for name, curve in curves.items() if _metric(name) == "loss"}
    others = {name: curve for name, curve in curves.items() if name not in losses}
    groups = [group for group in (losses, others) if group]

    def draw(figure: go.Figure, row: int) -> None:
        for column, group in enumerate(groups, start=1):
            _draw_curves(figure, group, axis, row, column)

    return [Panel([*map(_curves_title, groups)], HEIGHT, draw)] if groups else []


def _is_drawn(value: float | None) -> bool:
    return value is not None and math.isfinite(value)


def throughput_panel(frames: Sequence[Frame]) -> Panel:
    """Samples per second of the latest steps, over time: a line for each rank where ranks differ,
    else one for all."""
    some, title = thinned(list(frames), MAX_POINTS), "samples per second of the latest steps"
    names = [part.who for part in rates.parts(frames)]
    if rates.are_alike(frames):
        title += "".join(f", of {name}" for name in names)
        names = names or ["all"]
    elif len(names) <= RANKS_WITH_A_LINE:
        words = [word(f"{rank}", *line_of(rank)) for rank in range(len(names))]
        title += f", of rank   {'   '.join(words)}"
    return Panel([title], HEIGHT, lambda figure, row: _draw_throughput(figure, some, names, row))


def metric_curves(frames: Sequence[Frame]) -> tuple[str, Curves]:
    """Loss and metrics per epoch; over time where fewer than two epochs were finished.

    Returns:
        What the x axis is, and the curve of each metric.
    """
    rows = telemetry.epoch_rows(frames)
    if len(rows) > 1:
        names = [name for name in rows[-1] if name != "epoch"]
        epochs = [float(row["epoch"] or 0) for row in rows]
        return "epoch", {name: (epochs, [row.get(name) for row in rows]) for name in names}
    some = [frame for frame in thinned(list(frames), MAX_POINTS) if frame["logs"]]
    names = list(some[-1]["logs"]) if some else []
    seconds = [round(frame["elapsed"], 2) for frame in some]
    return "seconds", {name: (seconds, [f["logs"].get(name) for f in some]) for name in names}


def _draw_curves(figure: go.Figure, curves: Curves, axis: str, row: int, column: int) -> None:
    colours = _colours(curves)
    for name, (x, y) in curves.items():
        marks = {"mode": "lines+markers", "marker_size": 5} if len(x) <= 30 else {}
        add_line(figure, row, name, x, y, colours[name], _dash(name), col=column, **marks)
    figure.update_xaxes(title_text=axis, row=row, col=column)
    if axis == "epoch":  # no ticks between epochs
        last = max(x[-1] for x, _ in curves.values())
        figure.update_xaxes(dtick=max(1, -(-last // 8)), tick0=1, row=row, col=column)


def _draw_throughput(
    figure: go.Figure, frames: Sequence[Frame], names: Sequence[str], row: int
) -> None:
    """A line for each name, which are those of the ranks, or one for all of them."""
    seconds, values = telemetry.throughput(frames)
    seconds = [round(second, 2) for second in seconds]
    figure.update_xaxes(title_text="seconds", row=row)
    if len(names) > RANKS_WITH_A_LINE:
        _draw_heat(figure, seconds, values, row)
        return
    lines = values if len(names) > 1 else [[fmean(now) for now in zip(*values, strict=True)]]
    for i, (name, line) in enumerate(zip(names, lines, strict=True)):
        add_line(figure, row, name, seconds, line, *line_of(i))
    figure.update_yaxes(rangemode="tozero", row=row)


def _draw_heat(
    figure: go.Figure, seconds: list[float], values: list[list[float]], row: int
) -> None:
    """Ranks on one axis, time on the other; neighbours share a row where there are too many."""
    share = -(-len(values) // MAX_HEAT_ROWS)
    groups = [values[first : first + share] for first in range(0, len(values), share)]
    bottom, top = figure.get_subplot(row, 1).yaxis.domain
    figure.add_heatmap(
        x=seconds,
        y=[index * share for index in range(len(groups))],
        z=[[round(sum(now) / len(now)) for now in zip(*group, strict=True)] for group in groups],
        colorscale="Cividis",
        colorbar={
            "thickness": 10,
            "outlinewidth": 0,
            "len": top - bottom,
            "y": bottom,
            "yanchor": "bottom",
        },
        hovertemplate="rank %{y}, %{x} s: %{z} samples/s<extra></extra>",
        row=row,
        col=1,
    )
    figure.update_yaxes(title_text="rank", autorange="reversed", row=row)


def _curves_title(curves: Curves) -> str:
    colours = _colours(curves)
    if len(_metrics(curves)) == 1:
        return lines_of((word(name, colours[name], _dash(name)) for name in curves), PANEL_TITLE)
    title = lines_of((word(name, colours[name]) for name in _metrics(curves)), PANEL_TITLE)
    return f"{title}<br>dashed: validation" if len(_metrics(curves)) < len(curves) else title


def _colours(curves: Curves) -> dict[str, str]:
    """A colour for each curve; of several metrics, each shares its own with its validation."""
    metrics = _metrics(curves)
    if len(metrics) == 1:
        return dict(zip(curves, OKABE_ITO, strict=False))
    of_metric = dict(zip(metrics, cycle(OKABE_ITO), strict=False))
    return of_metric | {name: of_metric[_metric(name)] for name in curves}


def _metrics(curves: Curves) -> list[str]:
    return list(dict.fromkeys(map(_metric, curves)))


def _metric(name: str) -> str:
    return name.removeprefix("val_")


def _dash(name: str) -> str:
    return "dash" if name.startswith("val_") else "solid"
