"""The figure of ``%tnt_bench``, in plotly: a colour for each algorithm, grey for the limit.

::

    +----------+-----------+
    |   time   | bandwidth |   by size; dots are medians, bars quartiles, dotted lines the fits,
    +----------+-----------+   and what lies beyond the limit is shaded
          algorithms
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from tnt_notebook.dashboard.bench_times import BenchTimes
from tnt_notebook.dashboard.panels import GREY, GRID, OKABE_ITO
from tnt_notebook.dashboard.wording import short_time, size, three_digits

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


def by_size(bench: BenchTimes) -> go.Figure:
    """Time and bus bandwidth by size: measured, fitted, and the limit.

    Args:
        bench: of at least one size.

    Returns:
        A figure of less than 100 kB in JSON.
    """
    figure = _panels(bench)
    _draw_limit(figure, bench)
    for i, name in enumerate(bench.algorithms):
        colour = OKABE_ITO[i % len(OKABE_ITO)]
        _draw_fit(figure, bench, name, colour)
        _draw_measured(figure, bench, name, colour)
    return figure


def _panels(bench: BenchTimes) -> go.Figure:
    figure = make_subplots(rows=1, cols=2, subplot_titles=TITLES, horizontal_spacing=0.1)
    figure.update_layout(
        template="none",
        height=430,
        margin={"l": 58, "r": 16, "t": 46, "b": 84},
        paper_bgcolor="rgba(0,0,0,0)",
        plot_bgcolor="rgba(0,0,0,0)",
        font={"color": GREY, "size": 12},
        hovermode="closest",
        legend={"orientation": "h", "x": 0.5, "xanchor": "center", "y": -0.13, "yanchor": "top"},
    )
    figure.update_annotations(font={"size": 13, "color": GREY})
    axes = {"type": "log", "gridcolor": GRID, "zeroline": False, "linecolor": GRID}
    named = bench.sizes[:: math.ceil(len(bench.sizes) / _MOST_SIZES_NAMED)]
    figure.update_xaxes(
        axes,
        tickvals=named,
        ticktext=[size(count) for count in named],
        tickangle=0,
        range=_logarithms(bench.sizes[0] / _ROOM, bench.sizes[-1] * _ROOM),
    )
    for column, word in ((_TIME, short_time), (_BANDWIDTH, _rate)):
        ends = _ends(bench, column)
        ticks = _ticks(*ends)
        figure.update_yaxes(
            axes,
            tickvals=ticks,
            ticktext=[word(tick) for tick in ticks],
            range=_logarithms(*ends),
            row=1,
            col=column,
        )
    return figure


def _draw_limit(figure: go.Figure, bench: BenchTimes) -> None:
    for column in (_TIME, _BANDWIDTH):
        least, most = _ends(bench, column)
        edge = least if column == _TIME else most
        first, last = bench.sizes[0] / _ROOM, bench.sizes[-1] * _ROOM
        figure.add_scatter(
            x=[first, last],
            y=[edge, edge],
            legendgroup=LIMIT,
            showlegend=False,
            mode="lines",
            line={"width": 0},
            hoverinfo="skip",
            row=1,
            col=column,
        )
        values = [_value(entry, "median_s", column, bench) for entry in bench.limit]
        figure.add_scatter(
            x=[first, *bench.sizes, last],
            y=[values[0], *values, values[-1]],
            name=LIMIT,
            legendgroup=LIMIT,
            legendrank=2000,  # the last
            showlegend=column == _TIME,
            mode="lines",
            line={"color": GREY, "dash": "dash", "width": 1.5},
            fill="tonexty",
            fillcolor=_SHADE,
            hoverinfo="skip",
            row=1,
            col=column,
        )


def _draw_fit(figure: go.Figure, bench: BenchTimes, name: str, colour: str) -> None:
    fit = next(fit for fit in bench.fits if fit["algorithm"] == name)
    by_byte = 1 / fit["bytes_per_s"] if fit["bytes_per_s"] else 0.0
    first, last = bench.sizes[0], bench.sizes[-1]
    x = [round(first * (last / first) ** (i / _FIT_POINTS)) for i in range(_FIT_POINTS + 1)]
    figure.add_scatter(
        x=x,
        y=[_short(fit["latency_s"] + count * by_byte) for count in x],
        legendgroup=name,
        showlegend=False,
        mode="lines",
        line={"color": colour, "dash": "dot", "width": 1.2},
        opacity=0.7,
        hoverinfo="skip",
        row=1,
        col=_TIME,
    )


def _draw_measured(figure: go.Figure, bench: BenchTimes, name: str, colour: str) -> None:
    rows = [row for row in bench.rows if row["algorithm"] == name]
    for column, word in ((_TIME, short_time), (_BANDWIDTH, _rate)):
        low, median, high = (
            [_value(row, key, column, bench) for row in rows]
            for key in ("low_s", "median_s", "high_s")
        )
        if column == _BANDWIDTH:
            low, high = high, low
        figure.add_scatter(
            x=[row["bytes"] for row in rows],
            y=median,
            error_y=_bars(low, median, high, colour),
            name=name,
            legendgroup=name,
            showlegend=column == _TIME,
            mode="lines+markers",
            line={"color": colour, "width": 2},
            marker={"size": 6},
            customdata=[
                f"{size(row['bytes'])}: {word(m)} ({word(a)} to {word(b)})"
                for row, a, m, b in zip(rows, low, median, high, strict=True)
            ],
            hovertemplate="%{customdata}<extra>%{fullData.name}</extra>",
            row=1,
            col=column,
        )


def _value(entry: dict[str, Any], key: str, column: int, bench: BenchTimes) -> float:
    """A time, or the bandwidth that it means."""
    if column == _TIME:
        return _short(entry[key])
    return _short(2 * (bench.ranks - 1) / bench.ranks * entry["bytes"] / entry[key])


def _bars(
    low: Sequence[float], median: Sequence[float], high: Sequence[float], colour: str
) -> dict[str, Any]:
    return {
        "type": "data",
        "symmetric": False,
        "array": [_short(b - m) for m, b in zip(median, high, strict=True)],
        "arrayminus": [_short(m - a) for a, m in zip(low, median, strict=True)],
        "color": colour,
        "thickness": 1,
        "width": 0,
    }


def _ends(bench: BenchTimes, column: int) -> tuple[float, float]:
    """Where the axis of values begins and ends."""
    values = [
        _value(entry, key, column, bench)
        for entry in (*bench.rows, *bench.limit)
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


def _rate(bytes_per_s: float) -> str:
    giga = bytes_per_s >= 999.5e6
    return f"{three_digits(bytes_per_s / (1e9 if giga else 1e6))} {'GB' if giga else 'MB'}/s"
