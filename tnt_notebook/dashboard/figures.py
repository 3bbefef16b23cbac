"""The figure that stays in a notebook, in plotly, from the frames of a run.

::

    +----------+----------+
    |   loss   | metrics  |   per epoch, or over time where there are too few epochs
    +----------+----------+
    | samples per second  |   a line per rank, a heat map for many
    +---------------------+

Colours are those of Okabe and Ito; backgrounds are clear and lines grey, so that a figure saved in
a light theme can be read in a dark one. Each title names its curves in their colours: it is the
legend too, and takes no room from the curves.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import cycle

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from tnt_notebook import telemetry
from tnt_notebook.telemetry import Frame, thinned

OKABE_ITO = ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#999999", "#B8A800"]
RANKS_WITH_A_LINE = 16
MAX_POINTS = 300
MAX_HEAT_ROWS = 64
PANEL_TITLE = 34  # characters in a line of the title of half the width
GREY = "#7b7b7b"
GRID = "rgba(128,128,128,0.25)"

Curves = dict[str, tuple[list[float], list[float | None]]]
"""Name of a metric: epochs or seconds, and its values there."""


def overview(frames: Sequence[Frame]) -> go.Figure:
    """Loss, metrics and samples per second of a run.

    Args:
        frames: The frames of one run in order, at least one.

    Returns:
        A figure of less than 100 kB in JSON, whatever the number of ranks and frames.
    """
    axis, curves = metric_curves(frames)
    losses = {name: curve for name, curve in curves.items() if _metric(name) == "loss"}
    others = {name: curve for name, curve in curves.items() if name not in losses}
    panels = [group for group in (losses, others) if group]
    ranks = len(telemetry.total_samples(frames))
    titles = [*map(_curves_title, panels), _throughput_title(ranks)]

    figure = _grid(len(panels), titles)
    for column, group in enumerate(panels, start=1):
        _draw_curves(figure, group, axis, column)
    _draw_throughput(figure, thinned(list(frames), MAX_POINTS), row=2 if panels else 1)
    return figure


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


def _draw_curves(figure: go.Figure, curves: Curves, axis: str, column: int) -> None:
    colours = _colours(curves)
    for name, (x, y) in curves.items():
        figure.add_scatter(
            x=x,
            y=y,
            name=name,
            line={"color": colours[name], "dash": _dash(name), "width": 2},
            mode="lines+markers" if len(x) <= 30 else "lines",
            marker={"size": 5},
            row=1,
            col=column,
        )
    figure.update_xaxes(title_text=axis, row=1, col=column)
    if axis == "epoch":  # no ticks between epochs
        last = max(x[-1] for x, _ in curves.values())
        figure.update_xaxes(dtick=max(1, -(-last // 8)), tick0=1, row=1, col=column)


def _draw_throughput(figure: go.Figure, frames: Sequence[Frame], row: int) -> None:
    seconds, rates = telemetry.throughput(frames)
    seconds = [round(second, 2) for second in seconds]
    figure.update_xaxes(title_text="seconds", row=row)
    if len(rates) > RANKS_WITH_A_LINE:
        _draw_heat(figure, seconds, rates, row)
        return
    for rank, values in enumerate(rates):
        figure.add_scatter(
            x=seconds,
            y=values,
            name=f"rank {rank}",
            mode="lines",
            line={
                "color": OKABE_ITO[rank % len(OKABE_ITO)],
                "dash": "solid" if rank < len(OKABE_ITO) else "dot",
                "width": 1.5,
            },
            row=row,
            col=1,
        )
    figure.update_yaxes(rangemode="tozero", row=row)


def _draw_heat(figure: go.Figure, seconds: list[float], rates: list[list[float]], row: int) -> None:
    """Ranks on one axis, time on the other; neighbours share a row where there are too many."""
    share = -(-len(rates) // MAX_HEAT_ROWS)
    groups = [rates[first : first + share] for first in range(0, len(rates), share)]
    figure.add_heatmap(
        x=seconds,
        y=[index * share for index in range(len(groups))],
        z=[[round(sum(now) / len(now)) for now in zip(*group, strict=True)] for group in groups],
        colorscale="Cividis",
        colorbar={"thickness": 10, "outlinewidth": 0, "len": 0.4, "y": 0, "yanchor": "bottom"},
        hovertemplate="rank %{y}, %{x} s: %{z} samples/s<extra></extra>",
        row=row,
        col=1,
    )
    figure.update_yaxes(title_text="rank", autorange="reversed", row=row)


def _grid(panels: int, titles: list[str]) -> go.Figure:
    """An empty figure: `panels` side by side, and one of the whole width beneath."""
    wide = [{"colspan": 2}, None]
    upper = [{}, {}] if panels == 2 else wide
    specs = [upper, wide] if panels else [wide]
    figure = make_subplots(
        rows=len(specs),
        cols=2,
        specs=specs,
        subplot_titles=titles,
        horizontal_spacing=0.1,
        vertical_spacing=0.2,
    )
    top = 36 + 17 * max(title.count("<br>") for title in titles[:-1] or titles)
    figure.update_layout(
        template="none",
        height=(510 if panels else 230) + top,
        margin={"l": 56, "r": 16, "t": top, "b": 44},
        paper_bgcolor="rgba(0,0,0,0)",
        plot_bgcolor="rgba(0,0,0,0)",
        font={"color": GREY, "size": 12},
        hovermode="closest",
        showlegend=False,
    )
    axes = {"gridcolor": GRID, "zeroline": False, "linecolor": GRID, "title_font_size": 12}
    figure.update_xaxes(axes, title_standoff=8)
    figure.update_yaxes(axes, nticks=6, title_standoff=4)
    figure.update_annotations(font={"size": 13, "color": GREY})
    return figure


def _curves_title(curves: Curves) -> str:
    colours = _colours(curves)
    if len(_metrics(curves)) == 1:
        return _lines(_word(name, colours[name], _dash(name)) for name in curves)
    title = _lines(_word(name, colours[name], "solid") for name in _metrics(curves))
    return f"{title}<br>dashed: validation" if len(_metrics(curves)) < len(curves) else title


def _throughput_title(ranks: int) -> str:
    if not 1 < ranks <= RANKS_WITH_A_LINE:
        return "samples per second"
    solid = _lines(
        (_word(f"{rank}", OKABE_ITO[rank], "solid") for rank in range(min(ranks, 8))), 80
    )
    dotted = [_word(f"{rank}", OKABE_ITO[rank - 8], "dot") for rank in range(8, ranks)]
    return f"samples per second of rank   {solid}   {_lines(dotted, 80)}"


def _word(text: str, colour: str, dash: str) -> str:
    return f'<span style="color:{colour}">{"━" if dash == "solid" else "┅"} {text}</span>'


def _lines(words: Iterable[str], width: int = PANEL_TITLE) -> str:
    """The words in lines that are not too long for a panel."""
    lines: list[list[str]] = [[]]
    room = width
    for word in words:
        length = word.index("</span>") - word.index(">") + 2
        if lines[-1] and length > room:
            lines.append([])
            room = width
        lines[-1].append(word)
        room -= length
    return "<br>".join("   ".join(line) for line in lines)


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
