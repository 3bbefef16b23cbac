"""Panels under each other in one plotly figure, each of its own height in pixels.

Their titles are legends, too: they name curves and boxes in their colours. These are Okabe and
Ito's; backgrounds are clear and lines grey, so that what is saved in a light theme can be read in a
dark one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import plotly.graph_objects as go
from plotly.subplots import make_subplots

OKABE_ITO = ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#999999", "#B8A800"]
GREY = "#7b7b7b"
GRID = "rgba(128,128,128,0.25)"
_DASHES = ("solid", "dot", "dash")
_TITLE = 17  # pixels of a line
_BENEATH = 44  # pixels of ticks and of what an axis is
BESIDE = 34  # pixels of plotly's buttons, which would lie over titles
#: These buttons, beside a figure.
MODEBAR = {
    "orientation": "v",
    "bgcolor": "rgba(0,0,0,0)",
    "color": GREY,
    "remove": ["select2d", "lasso2d", "autoScale2d"],
}


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


def drawn(panels: Sequence[Panel], left: int = 64) -> go.Figure:
    """The figure of these panels.

    Args:
        left: pixels for what stands left of the axes.
    """
    lines = [max(title.count("<br>") + 1 for title in panel.titles) for panel in panels]
    top = 19 + _TITLE * lines[0]
    gap = _BENEATH + 14 + _TITLE * max(lines[1:]) if len(panels) > 1 else 0
    inside = sum(panel.height for panel in panels) + gap * (len(panels) - 1)
    figure = make_subplots(
        rows=len(panels),
        cols=2,
        specs=[[{}, {}] if len(p.titles) == 2 else [{"colspan": 2}, None] for p in panels],
        subplot_titles=[title for panel in panels for title in panel.titles],
        row_heights=[panel.height for panel in panels],
        horizontal_spacing=0.1,
        vertical_spacing=gap / inside,
    )
    figure.update_layout(
        template="none", height=top + inside + _BENEATH,
        margin={"l": left, "r": BESIDE, "t": top, "b": _BENEATH}, paper_bgcolor="rgba(0,0,0,0)",
        plot_bgcolor="rgba(0,0,0,0)", font={"color": GREY, "size": 12}, hovermode="closest",
        showlegend=False, barmode="overlay", uniformtext={"minsize": 8, "mode": "hide"},
        modebar=MODEBAR,
    )  # fmt: skip
    axes = {"gridcolor": GRID, "zeroline": False, "linecolor": GRID, "title_font_size": 12}
    figure.update_xaxes(axes, title_standoff=8)
    figure.update_yaxes(axes, nticks=6, title_standoff=4)
    figure.update_annotations(font={"size": 13, "color": GREY})
    for row, panel in enumerate(panels, start=1):
        panel.draw(figure, row)
    return figure


def line_of(index: int) -> tuple[str, str]:
    """Colour and dash of one of many lines."""
    return OKABE_ITO[index % len(OKABE_ITO)], _DASHES[index // len(OKABE_ITO) % len(_DASHES)]


def add_line(
    figure: go.Figure,
    row: int,
    name: str,
    x: list[float],
    y: list[Any],
    colour: str,
    dash: str,
    **more: Any,
) -> None:
    """Draws a curve into a panel."""
    look = {"mode": "lines", "line": {"color": colour, "dash": dash, "width": 2}, "col": 1}
    figure.add_scatter(x=x, y=y, name=name, row=row, **look | more)


def scale_of(seconds: float) -> tuple[str, float]:
    """The unit of an axis as long as this, and how many of it a second has."""
    return ("ms", 1e3) if seconds < 1 else ("s", 1.0)


def height_of(rows: int) -> int:
    """Pixels of so many rows; the more there are, the lower each is."""
    return rows * (40 if rows <= 8 else 26 if rows <= 16 else 16)


def lay_out_rows(figure: go.Figure, row: int, unit: str, end: float) -> None:
    """Gives a panel one row below the other, and an axis from 0 to its end."""
    figure.update_xaxes(title={"text": unit, "standoff": 6}, range=[0, end], row=row)
    figure.update_yaxes(
        autorange="reversed", showgrid=False, ticklabelstandoff=6, nticks=0, row=row
    )


def short(value: float) -> float:
    """Five digits: more would only make the notebook larger."""
    return float(f"{value:.5g}")


def word(text: str, colour: str, dash: str = "solid") -> str:
    """The name of a curve, in its colour."""
    return f'<span style="color:{colour}">{"━" if dash == "solid" else "┅"} {text}</span>'


def swatch(text: str, colour: str) -> str:
    """What a box stands for, beside its colour, which may be too faint for letters."""
    return f'<span style="color:{colour}">■</span> {text}'


def lines_of(words: Iterable[str], width: int = 90) -> str:
    """The words in lines of not more characters than this."""
    lines: list[list[str]] = [[]]
    room = width
    for one in words:
        length = len(re.sub(r"<[^>]*>", "", one)) + 1
        if lines[-1] and length > room:
            lines.append([])
            room = width
        lines[-1].append(one)
        room -= length
    return "<br>".join("   ".join(line) for line in lines)
