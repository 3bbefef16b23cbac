"""Parallel coordinates of a sweep in plotly: ranges can be dragged along its axes."""

from __future__ import annotations

import math
from typing import Any

import plotly.graph_objects as go

from tnt_notebook.dashboard.figures.panels import BESIDE, GREY, MODEBAR, short
from tnt_notebook.sweep.board import Axis, Board, axes_of

_HEIGHT = 320


def figure_of(board: Board) -> go.Figure:
    """The trials of which there is a value, coloured by it: a figure of less than 100 kB for a
    thousand trials."""
    axes = axes_of(board)
    rows = [row for row in board.rows if row.value is not None and math.isfinite(row.value)]
    columns = [
        [row.settings[axis.name] for row in rows] for axis in axes[:-1]
    ] + [[row.value for row in rows]]  # fmt: skip
    figure = go.Figure(
        go.Parcoords(
            dimensions=[_dimension(a, c) for a, c in zip(axes, columns, strict=True)],
            line={
                "color": [short(float(value)) for value in columns[-1]],
                "colorscale": "Viridis",
                "reversescale": not board.objective.maximise,
                "showscale": True,
                "colorbar": {"title": {"text": board.objective.name}, "thickness": 12},
            },
            labelfont={"color": GREY, "size": 13},
            tickfont={"color": GREY},
            rangefont={"color": GREY},
        )
    )
    figure.update_layout(
        template="none", height=_HEIGHT, margin={"l": 64, "r": BESIDE, "t": 56, "b": 24},
        paper_bgcolor="rgba(0,0,0,0)", font={"color": GREY, "size": 12}, modebar=MODEBAR,
    )  # fmt: skip
    return figure


def _dimension(axis: Axis, values: list[Any]) -> dict[str, Any]:
    if axis.options:
        places = [axis.options.index(value) for value in values]
        texts = [str(option) for option in axis.options]
        ticks = {"tickvals": list(range(len(texts))), "ticktext": texts}
        return {"label": axis.name, "values": places, "range": [0, max(1, len(texts) - 1)], **ticks}
    if not axis.log:
        return {"label": axis.name, "values": [short(float(v)) for v in values],
                "range": [axis.low, axis.high] if axis.low < axis.high else None}  # fmt: skip
    low, high = math.log10(axis.low), math.log10(axis.high)
    decades = [
        low,
        *(float(n) for n in range(math.ceil(low + 0.2), math.floor(high - 0.2) + 1)),
        high,
    ]
    texts = [f"{10**at:.3g}" for at in decades]
    logs = [short(math.log10(value)) for value in values]
    return {"label": axis.name, "values": logs, "range": [low, high], "tickvals": decades,
            "ticktext": texts}  # fmt: skip
