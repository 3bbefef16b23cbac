"""Panels under each other in one plotly figure, each of its own height in pixels."""

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
