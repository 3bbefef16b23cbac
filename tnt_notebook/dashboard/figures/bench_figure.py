"""The figure of ``%tnt_bench``, in plotly: a colour for each algorithm, grey for the limit.

::

    +----------+-----------+
    |   time   | bandwidth |   by size; dots are medians, bars quartiles, dotted lines the fits,
    +----------+-----------+   and what lies beyond the limit is shaded
          algorithms
"""

from __future__ import annotations

import math
from typing import Any

import plotly.graph_objects as go

from tnt_notebook.dashboard.figures.panels import GREY, Panel, drawn, line_of
from tnt_notebook.dashboard.figures.wording import short_time, size, three_digits

TITLES = (
    "<b>time</b><br>dotted: latency + bytes / rate",
    "<b>bus bandwidth</b><br>2 (p - 1) / p · bytes / time",
)
LIMIT = "limit: moving the bytes"
_TIME, _BANDWIDTH = 1, 2  # columns
_SHADE = "rgba(128,128,128,0.12)"
_MOST_SIZES_NAMED = 8
_FIT_POINTS = 24
_ROOM = 1.3  # beside the first and the last dot, as a factor

Result = dict[str, Any]


def by_size(bench: Result) -> go.Figure:
    """Time and bus bandwidth by size: measured, fitted, and the limit.

    Args:
        bench: of at least one size, what :class:`~tnt_notebook.dashboard.reports.bench.Bench` is
            made of.

    Returns:
        A figure of less than 100 kB in JSON.
    """

    def draw(figure: go.Figure, _: int) -> None:
        for column in (_TIME, _BANDWIDTH):
            _draw_limit(figure, bench, column)
        for i, name in enumerate(dict.fromkeys(row["algorithm"] for row in bench["entries"])):
            colour = line_of(i)[0]
            _draw_fit(figure, bench, name, colour)
            for column in (_TIME, _BANDWIDTH):
                _draw_measured(figure, bench, name, colour, column)
        _draw_axes(figure, bench)

    figure = drawn([Panel(TITLES, 300, draw)], left=58)
    legend = {"orientation": "h", "x": 0.5, "xanchor": "center", "y": -0.13, "yanchor": "top"}
    figure.update_layout(height=437, margin_b=84, showlegend=True, legend=legend)
    return figure


def _draw_axes(figure: go.Figure, bench: Result) -> None:
    sizes = _sizes(bench)
    named = sizes[:: math.ceil(len(sizes) / _MOST_SIZES_NAMED)]
    words = [size(count) for count in named]
    span = _logarithms(sizes[0] / _ROOM, sizes[-1] * _ROOM)
    figure.update_xaxes(type="log", tickvals=named, ticktext=words, tickangle=0, range=span)
    for column in (_TIME, _BANDWIDTH):
        ends = _ends(bench, column)
        ticks = _ticks(*ends)
        words = [_words(tick, column) for tick in ticks]
        figure.update_yaxes(
            type="log", tickvals=ticks, ticktext=words, range=_logarithms(*ends), row=1, col=column
        )


def _draw_limit(figure: go.Figure, bench: Result, column: int) -> None:
    least, most = _ends(bench, column)
    edge = least if column == _TIME else most
    sizes = _sizes(bench)
    first, last = sizes[0] / _ROOM, sizes[-1] * _ROOM
    values = [_value(entry, "median_s", column, bench) for entry in bench["limit"]]
    group = {"legendgroup": LIMIT, "mode": "lines", "hoverinfo": "skip", "row": 1, "col": column}
    figure.add_scatter(x=[first, last], y=[edge, edge], line_width=0, showlegend=False, **group)
    figure.add_scatter(
        x=[first, *sizes, last],
        y=[values[0], *values, values[-1]],
        name=LIMIT,
        legendrank=2000,  # the last
        showlegend=column == _TIME,
        line={"color": GREY, "dash": "dash", "width": 1.5},
        fill="tonexty",
        fillcolor=_SHADE,
        **group,
    )


def _draw_fit(figure: go.Figure, bench: Result, name: str, colour: str) -> None:
    fit = next(fit for fit in bench["fits"] if fit["algorithm"] == name)
    by_byte = 1 / fit["bytes_per_s"] if fit["bytes_per_s"] else 0.0
    first, last = _sizes(bench)[0], _sizes(bench)[-1]
    x = [round(first * (last / first) ** (i / _FIT_POINTS)) for i in range(_FIT_POINTS + 1)]
    figure.add_scatter(
        x=x, y=[_short(fit["latency_s"] + count * by_byte) for count in x], legendgroup=name,
        showlegend=False, mode="lines", line={"color": colour, "dash": "dot", "width": 1.2},
        opacity=0.7, hoverinfo="skip", row=1, col=_TIME,
    )  # fmt: skip


def _draw_measured(figure: go.Figure, bench: Result, name: str, colour: str, column: int) -> None:
    rows = [row for row in bench["entries"] if row["algorithm"] == name]
    low, median, high = (
        [_value(row, key, column, bench) for row in rows] for key in ("low_s", "median_s", "high_s")
    )
    if column == _BANDWIDTH:
        low, high = high, low
    bars = {
        "type": "data", "symmetric": False,
        "array": [_short(b - m) for m, b in zip(median, high, strict=True)],
        "arrayminus": [_short(m - a) for a, m in zip(low, median, strict=True)], "color": colour,
        "thickness": 1, "width": 0,
    }  # fmt: skip
    figure.add_scatter(
        x=[row["bytes"] for row in rows],
        y=median,
        error_y=bars,
        name=name,
        legendgroup=name,
        showlegend=column == _TIME,
        mode="lines+markers",
        line={"color": colour, "width": 2},
        marker={"size": 6},
        customdata=[
            f"{size(row['bytes'])}: {_words(m, column)} "
            f"({_words(a, column)} to {_words(b, column)})"
            for row, a, m, b in zip(rows, low, median, high, strict=True)
        ],
        hovertemplate="%{customdata}<extra>%{fullData.name}</extra>",
        row=1,
        col=column,
    )


def _sizes(bench: Result) -> list[int]:
    """Bytes of the vectors, ascending."""
    return [entry["bytes"] for entry in bench["limit"]]


def _value(entry: dict[str, Any], key: str, column: int, bench: Result) -> float:
    """A time, or the bandwidth that it means."""
    if column == _TIME:
        return _short(entry[key])
    return _short(2 * (bench["ranks"] - 1) / bench["ranks"] * entry["bytes"] / entry[key])


def _ends(bench: Result, column: int) -> tuple[float, float]:
    """Where the axis of values begins and ends."""
    values = [
        _value(entry, key, column, bench)
        for entry in (*bench["entries"], *bench["limit"])
        for key in ("low_s", "high_s")
    ]
    return min(values) / _ROOM, max(values) * _ROOM


def _ticks(least: float, most: float) -> list[float]:
    """Powers of ten; where there are few of them, twice and five times them as well."""
    powers = range(math.floor(math.log10(least)), math.ceil(math.log10(most)) + 1)
    steps = (1, 2, 5) if math.log10(most / least) < 2 else (1, 3) if len(powers) < 5 else (1,)
    ticks = [_short(step * 10.0**power) for power in powers for step in steps]
    return [tick for tick in ticks if least <= tick <= most]


def _logarithms(least: float, most: float) -> list[float]:
    return [math.log10(least), math.log10(most)]


def _short(value: float) -> float:
    """Four digits: more would only make the notebook larger."""
    return float(f"{value:.4g}")


def _words(value: float, column: int) -> str:
    """A time, or bytes a second."""
    if column == _TIME:
        return short_time(value)
    giga = value >= 999.5e6
    return f"{three_digits(value / (1e9 if giga else 1e6))} {'GB' if giga else 'MB'}/s"
