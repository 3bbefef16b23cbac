"""The figure of a study of scaling, in plotly: a column each for strong and weak.

::

    +--------------+--------------+
    | samples/s    | samples/s    |    dots are medians of the rounds, bars reach from the slowest
    +--------------+--------------+    to the fastest; dotted what was planned, grey the ideal
    | efficiency   | efficiency   |
    +--------------+--------------+
    | where a step goes           |    a bar for each number of ranks and mode
    +-----------------------------+
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import plotly.graph_objects as go

from tnt_notebook.dashboard.figures.breakdown import panel_of
from tnt_notebook.dashboard.figures.panels import GREY, OKABE_ITO, Panel, drawn, short, word
from tnt_notebook.dashboard.figures.wording import plural, rate
from tnt_notebook.telemetry import Breakdown

MEASURED, PLANNED = OKABE_ITO[0], OKABE_ITO[1]
_HEIGHT = 240
_BAR = 26
_ROOM = 1.25  # beside the first and the last dot, as a factor

Rows = Sequence[dict[str, Any]]


def figure_of(rows: Rows, parts: Sequence[tuple[str, dict[str, float]]]) -> go.Figure:
    """Measured, planned and ideal throughput and efficiency by ranks; where a step goes.

    Args:
        rows: of :class:`~tnt_notebook.dashboard.reports.scaling.Scaling`, at least one.
        parts: names of steps, and the seconds of their parts.

    Returns:
        A figure of less than 100 kB in JSON.
    """
    modes = list(dict.fromkeys(row["mode"] for row in rows))
    of_modes = [[row for row in rows if row["mode"] == mode] for mode in modes]
    planned = any(row["expected_efficiency"] for row in rows)
    words = [word("planned", PLANNED, "dot")] if planned else []
    legend = "   ".join([word("measured", MEASURED), *words, word("ideal", GREY, "dot")])

    def throughput(figure: go.Figure, row: int) -> None:
        _draw(figure, row, of_modes, "samples_per_s")
        ends = _ends(of_modes, "samples_per_s")
        figure.update_yaxes(type="log", **ticks_between(*ends), row=row)

    def efficiency(figure: go.Figure, row: int) -> None:
        _draw(figure, row, of_modes, "efficiency")
        _, most = _ends(of_modes, "efficiency")
        figure.update_yaxes(range=[0, 1.1 * most], tickformat=".0%", row=row)
        figure.update_xaxes(title_text="ranks", row=row)

    batches = [_batches(mode, own) for mode, own in zip(modes, of_modes, strict=True)]
    titles = [
        f"<b>{mode} scaling</b>: samples per second<br>{batch}<br>{legend}"
        for mode, batch in zip(modes, batches, strict=True)
    ]
    panels = [
        Panel(titles, _HEIGHT, throughput),
        Panel(["<b>efficiency</b>, of a rank beside the fewest" for _ in modes], 180, efficiency),
    ]
    if parts:
        names = [name for name, _ in parts]
        steps = [Breakdown(**seconds) for _, seconds in parts]
        panels.append(panel_of(", the mean of all ranks", names, steps, _BAR * len(names)))
    return drawn(panels, left=24 + 7 * max([6, *(len(name) for name, _ in parts)]))


def _batches(mode: str, rows: Rows) -> str:
    first, last = rows[0]["batch"], rows[-1]["batch"]
    return f"batches of {first:,}" if first == last else f"batches of {first:,} to {last:,}"


def _draw(figure: go.Figure, row: int, of_modes: Sequence[Rows], what: str) -> None:
    for col, rows in enumerate(of_modes, start=1):
        ranks = [one["ranks"] for one in rows]
        draw_ideal(figure, ranks, _ideal(rows, what), row=row, col=col)
        _draw_planned(figure, rows, what, row=row, col=col)
        _draw_measured(figure, rows, what, row=row, col=col)
        lay_out_ranks(figure, ranks, row=row, col=col)


def lay_out_ranks(figure: go.Figure, ranks: Sequence[int], **place: int) -> None:
    """Gives a plot an axis of numbers of ranks, in order."""
    span = [math.log10(ranks[0] / _ROOM), math.log10(ranks[-1] * _ROOM)]
    figure.update_xaxes(
        type="log", tickvals=ranks, ticktext=[f"{n:,}" for n in ranks], range=span, tickangle=0,
        **place,
    )  # fmt: skip


def _ideal(rows: Rows, what: str) -> list[float]:
    first = rows[0]
    if what == "efficiency":
        return [1.0 for _ in rows]
    return [first[what] * one["ranks"] / first["ranks"] for one in rows]


def draw_ideal(
    figure: go.Figure, ranks: Sequence[int], values: Sequence[float], **place: int
) -> None:
    """Draws what there would be if nothing were lost."""
    figure.add_scatter(
        x=ranks, y=[short(value) for value in values], name="ideal", mode="lines",
        hoverinfo="skip", line={"color": GREY, "dash": "dot", "width": 1.5}, **place,
    )  # fmt: skip


def _draw_planned(figure: go.Figure, rows: Rows, what: str, **place: int) -> None:
    planned = [one[f"expected_{what}"] for one in rows]
    if not any(planned):
        return
    figure.add_scatter(
        x=[one["ranks"] for one in rows], y=[v if v is None else short(v) for v in planned],
        name="planned", mode="lines+markers", line={"color": PLANNED, "dash": "dot", "width": 2},
        marker={"size": 5, "symbol": "diamond"}, hovertemplate="%{customdata}<extra></extra>",
        customdata=[f"{plural(one['ranks'], 'rank')}, planned: {_said(v, what)}"
                    for one, v in zip(rows, planned, strict=True)], **place,
    )  # fmt: skip


def _draw_measured(figure: go.Figure, rows: Rows, what: str, **place: int) -> None:
    low, values, high = ([one[f"{end}{what}"] for one in rows] for end in ("low_", "", "high_"))
    figure.add_scatter(
        x=[one["ranks"] for one in rows], y=[short(v) for v in values], name="measured",
        mode="lines+markers", line={"color": MEASURED, "width": 2}, marker={"size": 8},
        error_y={
            "type": "data", "symmetric": False, "color": MEASURED, "thickness": 1.5, "width": 4,
            "array": [short(b - v) for v, b in zip(values, high, strict=True)],
            "arrayminus": [short(v - a) for v, a in zip(values, low, strict=True)],
        },
        customdata=[f"{plural(one['ranks'], 'rank')}: {_said(v, what)} "
                    f"({_said(a, what)} to {_said(b, what)})"
                    for one, a, v, b in zip(rows, low, values, high, strict=True)],
        hovertemplate="%{customdata}<extra></extra>", **place,
    )  # fmt: skip


def _ends(of_modes: Sequence[Rows], what: str) -> tuple[float, float]:
    """The least and the most of values, of all modes."""
    values = [v for rows in of_modes for v in _ideal(rows, what)]
    for rows in of_modes:
        values += [one[f"{end}{what}"] for one in rows for end in ("low_", "high_")]
        values += [v for one in rows if (v := one[f"expected_{what}"])]
    return min(values), max(values)


def _said(value: float | None, what: str) -> str:
    if value is None:
        return "-"
    return f"{value:.0%}" if what == "efficiency" else f"{rate(value)} samples/s"


def ticks_between(least: float, most: float) -> dict[str, Any]:
    """The range of an axis of powers, with room beside these values, and its ticks: powers of ten,
    and what lies between them, more of it the fewer they are."""
    least, most = least / _ROOM, most * _ROOM
    first, last = math.floor(math.log10(least)), math.ceil(math.log10(most))
    decades = math.log10(most / least)
    steps: tuple[float, ...] = (1, 1.5, 2, 3, 4, 5, 6, 8)
    if decades > 0.8:
        steps = (1, 2, 5) if decades < 2.5 else (1,)
    ticks = [step * 10.0**power for power in range(first, last + 1) for step in steps]
    ticks = [tick for tick in ticks if least <= tick <= most]
    span = [math.log10(least), math.log10(most)]
    words = [f"{tick:,.0f}" if tick >= 1000 else f"{tick:.6g}" for tick in ticks]
    return {"range": span, "tickvals": ticks, "ticktext": words}
