"""What figures with a row for each rank have in common, in plotly."""

from __future__ import annotations

from collections.abc import Sequence

import plotly.graph_objects as go

from tnt_notebook.dashboard.grid import GREY, GRID


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
