"""What to expect of a model by the number of ranks, in plotly.

::

    +-----------------------------+
    | samples/s by ranks          |    a ring around the number that was asked for, grey the ideal
    +-----------------------------+
    | where a step goes           |    a bar for each number, all equally long
    +-----------------------------+
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import plotly.graph_objects as go

from tnt_notebook.dashboard.figures.breakdown import panel_of
from tnt_notebook.dashboard.figures.panels import GREY, Panel, drawn, short, word
from tnt_notebook.dashboard.figures.scaling_figure import (
    PLANNED,
    draw_ideal,
    lay_out_ranks,
    ticks_between,
)
from tnt_notebook.dashboard.figures.wording import plural, rate, short_time, three_digits
from tnt_notebook.telemetry import Breakdown

_HEIGHT, _BAR = 220, 22


def figure_of(rows: Sequence[dict[str, Any]], asked: int) -> go.Figure:
    """Planned and ideal throughput by ranks, and where a step goes on each number.

    Args:
        rows: of :mod:`tnt_notebook.plan.by_ranks`, at least one.
        asked: the ranks that were asked for, one of theirs.
    """

    def throughput(figure: go.Figure, row: int) -> None:
        ranks, rates = ([one[what] for one in rows] for what in ("ranks", "samples_per_s"))
        ideal = [rates[0] * n / ranks[0] for n in ranks]
        draw_ideal(figure, ranks, ideal, row=row, col=1)
        figure.add_scatter(
            x=ranks, y=[short(rate) for rate in rates], name="planned", mode="lines+markers",
            line={"color": PLANNED, "width": 2}, marker={"size": 7},
            customdata=[_said(one) for one in rows],
            hovertemplate="%{customdata}<extra></extra>", row=row, col=1,
        )  # fmt: skip
        figure.add_scatter(
            x=[asked], y=[short(rates[ranks.index(asked)])], name="asked for", mode="markers",
            marker={"size": 15, "symbol": "circle-open", "color": PLANNED, "line": {"width": 2}},
            hoverinfo="skip", row=row, col=1,
        )  # fmt: skip
        lay_out_ranks(figure, ranks, row=row, col=1)
        figure.update_xaxes(title_text="ranks", row=row)
        axis = ticks_between(min(rates + ideal), max(rates + ideal))
        figure.update_yaxes(type="log", **axis, row=row)

    legend = "   ".join([word("the fastest way on each", PLANNED), word("ideal", GREY, "dot")])
    names = [plural(row["ranks"], "rank") for row in rows]
    steps = [
        Breakdown(0.0, row["layers_s"], row["stages_s"], 0.0, row["exchange_s"], row["overhead_s"])
        for row in rows
    ]
    shares = panel_of(", as planned", names, steps, _BAR * len(rows), as_shares=True)
    title = f"<b>samples per second by ranks</b>, as planned<br>{legend}"
    return drawn([Panel([title], _HEIGHT, throughput), shares], left=24 + 7 * max(map(len, names)))


def _said(row: dict[str, Any]) -> str:
    times = f", {three_digits(row['speedup'])} times one rank"
    return (
        f"{plural(row['ranks'], 'rank')}: {rate(row['samples_per_s'])} samples/s{times}<br>"
        f"{row['options'] or 'whole copies'}<br>a step of {short_time(row['step_s'])}"
        f"{', limited by ' if row['limited_by'] else ''}{row['limited_by']}"
    )
