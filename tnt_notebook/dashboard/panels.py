"""Panels under each other in one plotly figure, each of its own height in pixels; and the axes of
figures with a row for each rank."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import plotly.graph_objects as go
from plotly.subplots import make_subplots

OKABE_ITO = ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#999999", "#B8A800"]
GREY = "#7b7b7b"
GRID = "rgba(128,128,128,0.25)"
_TITLE = 17  # pixels of a line
_BENEATH = 44  # pixels of ticks and of what an axis is


class Panel(NamedTuple):
    """A row of a figure: one plot, or two beside each other.

    Attributes:
        titles: of each plot; with ``<br>`` between lines.
        height: of the plots, in pixels.
        draw: draws into a figure, in a row that is counted from 1.
    """

    titles: Sequence[str]
    height: int
    draw: Callable[[go.Figure, int], None]


def drawn(panels: Sequence[Panel], left: int = 56) -> go.Figure:
    """The figure of these panels.

    Args:
        left: pixels for what stands left of the axes.
    """
    figure = _empty(panels, left)
    for row, panel in enumerate(panels, start=1):
        panel.draw(figure, row)
    return figure


def _empty(rows: Sequence[Panel], left: int) -> go.Figure:
    lines = [max(title.count("<br>") + 1 for title in row.titles) for row in rows]
    top = 19 + _TITLE * lines[0]
    gap = _BENEATH + 14 + _TITLE * max(lines[1:], default=0)
    inside = sum(row.height for row in rows) + gap * (len(rows) - 1)
    figure = make_subplots(
        rows=len(rows),
        cols=2,
        specs=[[{}, {}] if len(row.titles) == 2 else [{"colspan": 2}, None] for row in rows],
        subplot_titles=[title for row in rows for title in row.titles],
        row_heights=[row.height for row in rows],
        horizontal_spacing=0.1,
        vertical_spacing=gap / inside,
    )
    figure.update_layout(
        template="none",
        height=top + inside + _BENEATH,
        margin={"l": left, "r": 16, "t": top, "b": _BENEATH},
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


def scale_of(seconds: float) -> tuple[str, float]:
    """The unit of an axis as long as this, and how many of it a second has."""
    return ("ms", 1e3) if seconds < 1 else ("s", 1.0)


def lay_out(figure: go.Figure, rows: int, title: Sequence[str], unit: str) -> None:
    """Gives a figure its size, its title of one or more lines, its legend and its axes."""
    below = 18 * (len(title) - 1)
    figure.update_layout(
        template="none",
        height=118 + below + row_height(rows) * rows,
        margin={"l": 64, "r": 16, "t": 62 + below, "b": 44},
        paper_bgcolor="rgba(0,0,0,0)",
        plot_bgcolor="rgba(0,0,0,0)",
        font={"color": GREY, "size": 12},
        title={"text": "<br>".join(title), "font": {"size": 13}, "x": 0, "xref": "paper",
               "y": 1, "yref": "container", "yanchor": "top", "pad": {"t": 10}},
        legend={"orientation": "h", "x": 0, "y": 1, "yanchor": "bottom", "traceorder": "normal"},
    )  # fmt: skip
    lay_out_rows(figure, unit)


def row_height(rows: int) -> int:
    """Pixels of a row, the fewer the more there are."""
    return 40 if rows <= 8 else 26 if rows <= 16 else 16


def lay_out_rows(figure: go.Figure, unit: str, row: int | None = None) -> None:
    """Gives a figure, or a panel of it, a row of ranks below the other, and time to the right."""
    where = {} if row is None else {"row": row, "col": 1}
    figure.update_xaxes(
        title={"text": unit, "standoff": 6, "font": {"size": 12}},
        gridcolor=GRID,
        zeroline=False,
        linecolor=GRID,
        **where,
    )
    figure.update_yaxes(
        autorange="reversed", showgrid=False, linecolor=GRID, ticklabelstandoff=6, nticks=0, **where
    )
