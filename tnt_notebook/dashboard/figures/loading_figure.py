"""The figure of ``%tnt_bench input``, in plotly: a row for each format, a colour for each number of
parallel calls.

::

    +------------+------------------+
    |   local    |    throttled     |   samples/s, logarithmic; open dots are without prefetch,
    +------------+------------------+   the dotted line is synthetic, the dashed one what training
              parallel calls            consumes
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import plotly.graph_objects as go

from tnt_notebook.dashboard.figures.panels import GREY, Panel, drawn, line_of, short
from tnt_notebook.dashboard.figures.wording import plural, rate
from tnt_notebook.plan.loading import SYNTHETIC

_ROW, _LEAST = 48, 100  # pixels: of a format, and of all
_ROOM = 1.6  # beside the first and the last dot, as a factor

Row = dict[str, Any]


def by_format(
    rows: Sequence[Row],
    need: float | None,
    names: Mapping[str, str],
    storages: Mapping[str, str],
    limit_words: Callable[[Row], str],
) -> go.Figure:
    """Samples/s of all ranks by format, in a plot for each storage.

    Args:
        rows: as of :class:`~tnt_notebook.dashboard.reports.loading.InputBench`.
        need: samples/s that training consumes.
        names, storages, limit_words: how formats, storages and limits are called.
    """
    measured = [row for row in rows if "missing" not in row]
    files = [row for row in measured if row["format"] != SYNTHETIC]
    formats = list(dict.fromkeys(row["format"] for row in files))
    places = list(dict.fromkeys(row["storage"] for row in files))
    calls = sorted({row["calls"] for row in files})
    synthetic = next((r["samples_per_s"] for r in measured if r["format"] == SYNTHETIC), None)
    marks = [value for value in (need, synthetic) if value]
    values = [*(row["samples_per_s"] for row in files), *marks]
    span = [math.log10(min(values) / _ROOM), math.log10(max(values) * _ROOM)]

    def draw(figure: go.Figure, _: int) -> None:
        for column, place in enumerate(places, start=1):
            here = [row for row in files if row["storage"] == place]
            _draw_marks(figure, need, synthetic, column, len(formats))
            _draw_spans(figure, here, formats, column)
            for i, count in enumerate(calls):
                own = [row for row in here if row["calls"] == count]
                _draw_dots(figure, own, formats, (i, count), column, names, limit_words)
            _draw_limits(figure, here, formats, column, limit_words)

    titles = [f"<b>{storages[place]}</b><br>samples/s of all ranks" for place in places]
    figure = drawn([Panel(titles, max(_LEAST, _ROW * len(formats)), draw)], left=84)
    words = [names[name] for name in formats]
    ends = [len(formats) - 0.5, -0.5]
    figure.update_yaxes(tickvals=list(range(len(formats))), ticktext=words, range=ends, nticks=0)
    if len(places) > 1:
        figure.update_yaxes(showticklabels=False, col=2)
    figure.update_xaxes(type="log", range=span, dtick=1, tickformat=",d")
    legend = {"orientation": "h", "x": 0.5, "xanchor": "center", "y": -0.16, "yanchor": "top"}
    figure.update_layout(
        height=figure.layout.height + 40, margin_b=84, showlegend=True, legend=legend
    )
    return figure


def _draw_marks(
    figure: go.Figure, need: float | None, synthetic: float | None, column: int, rows: int
) -> None:
    """What there is beside files: lines from top to bottom."""
    lines = (("synthetic", synthetic, "dot"), ("what training consumes", need, "dash"))
    for name, value, dash in lines:
        if value:
            figure.add_scatter(
                x=[short(value)] * 2, y=[-0.5, rows - 0.5], mode="lines", name=name,
                legendgroup=name, legendrank=2000, showlegend=column == 1,
                line={"color": GREY, "dash": dash, "width": 1.5}, hoverinfo="skip", row=1,
                col=column,
            )  # fmt: skip


def _draw_spans(
    figure: go.Figure, rows: Sequence[Row], formats: Sequence[str], column: int
) -> None:
    """A thin line from the slowest to the fastest of a format."""
    x: list[float | None] = []
    y: list[int | None] = []
    for place, name in enumerate(formats):
        own = [row["samples_per_s"] for row in rows if row["format"] == name]
        if own:
            x += [short(min(own)), short(max(own)), None]
            y += [place, place, None]
    figure.add_scatter(
        x=x, y=y, mode="lines", line={"color": GREY, "width": 1}, opacity=0.5, hoverinfo="skip",
        showlegend=False, row=1, col=column,
    )  # fmt: skip


def _draw_dots(
    figure: go.Figure,
    rows: Sequence[Row],
    formats: Sequence[str],
    calls: tuple[int, int],
    column: int,
    names: Mapping[str, str],
    limit_words: Callable[[Row], str],
) -> None:
    """The rows of a number of parallel calls, which is the so manieth of them."""
    place, count = calls
    colour, most = line_of(place)[0], max((row["prefetch"] for row in rows), default=0)
    name = plural(count, "parallel call")
    rows = sorted(rows, key=lambda row: -row["prefetch"])  # the legend has the first one's dot
    figure.add_scatter(
        x=[short(row["samples_per_s"]) for row in rows],
        y=[formats.index(row["format"]) for row in rows],
        mode="markers", name=name, legendgroup=name, showlegend=column == 1,
        marker={
            "size": 10, "color": colour, "line": {"color": colour, "width": 2},
            "symbol": ["circle" if r["prefetch"] == most else "circle-open" for r in rows],
        },
        customdata=[
            f"{names[row['format']]}: {rate(row['samples_per_s'])} samples/s, "
            f"{row['bytes_per_s'] / 1e6:,.1f} MB/s<br>"
            f"prefetch {row['prefetch']}; limit: {limit_words(row)}"
            for row in rows
        ],
        hovertemplate="%{customdata}<extra>%{fullData.name}</extra>", row=1, col=column,
    )  # fmt: skip


def _draw_limits(
    figure: go.Figure,
    rows: Sequence[Row],
    formats: Sequence[str],
    column: int,
    limit_words: Callable[[Row], str],
) -> None:
    """Above the fastest dot of each format what limits it, and which ranks it feeds."""
    for place, name in enumerate(formats):
        own = [row for row in rows if row["format"] == name]
        if not own:
            continue
        best = max(own, key=lambda row: row["samples_per_s"])
        feeds = "" if best["feeds"] is None else f" · feeds {plural(best['feeds'], 'rank')}"
        figure.add_annotation(
            x=math.log10(best["samples_per_s"]), y=place, text=limit_words(best) + feeds,
            showarrow=False, yshift=15, xanchor="center", font={"size": 10, "color": GREY}, row=1,
            col=column,
        )  # fmt: skip
