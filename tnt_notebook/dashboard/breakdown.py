"""Where the time of a step goes on each rank, in plotly: a row per rank, a colour per part.

::

    rank 0   |input|      work       |exchange|other|
    rank 1   |input|    work    |  exchange   |other|
                    ms
"""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

import plotly.graph_objects as go

from tnt_notebook.dashboard.legend import lines_of, swatch
from tnt_notebook.dashboard.panels import (
    OKABE_ITO,
    Panel,
    lay_out,
    lay_out_rows,
    row_height,
    scale_of,
)
from tnt_notebook.dashboard.wording import plural, short_time
from tnt_notebook.telemetry import PARTS, Breakdown
from tnt_notebook.telemetry.sampling import spread

#: More rows would be too thin: then some ranks stand for all.
MOST_ROWS = 64
PANEL_ROWS = 16

COLOURS = {
    "input": OKABE_ITO[4],
    "work": OKABE_ITO[0],
    "wait": "rgba(128,128,128,0.35)",
    "exchange": OKABE_ITO[3],
    "other": "rgba(128,128,128,0.7)",
}
MEANING = {
    "input": "waits for its batch",
    "work": "forward and backward",
    "wait": "waits for other ranks of the pipeline",
    "exchange": "exchange of gradients that nothing hides, and waiting for slower ranks",
    "other": "optimizer, metrics, Python",
}


def figure_of(of_ranks: Sequence[Breakdown], limit: str) -> go.Figure:
    """The mean step of each rank, and the sentence that says what limits it."""
    shown = spread(len(of_ranks), MOST_ROWS)
    unit, factor = scale_of(max(b.step for b in of_ranks))
    figure = go.Figure()
    _draw(figure, of_ranks, shown, factor)
    sentence = textwrap.wrap(limit, 90)
    title = [
        f"<b>where a step goes</b> {_on(of_ranks, shown)}",
        *(f"<span style='font-size:12px'>{line}</span>" for line in sentence),
    ]
    lay_out(figure, len(shown), title, unit)
    figure.update_layout(barmode="overlay", bargap=0.3)
    return figure


def panel(of_ranks: Sequence[Breakdown]) -> Panel:
    """The same among other panels; its title is the legend, too."""
    shown = spread(len(of_ranks), PANEL_ROWS)
    unit, factor = scale_of(max(b.step for b in of_ranks))

    def draw(figure: go.Figure, row: int) -> None:
        _draw(figure, of_ranks, shown, factor, row)
        lay_out_rows(figure, unit, row)

    legend = lines_of((swatch(part, COLOURS[part]) for part in parts_of(of_ranks)), 90)
    return Panel(
        [f"<b>where a step goes</b> {_on(of_ranks, shown)}<br>{legend}"],
        row_height(len(shown)) * len(shown),
        draw,
    )


def _draw(
    figure: go.Figure,
    of_ranks: Sequence[Breakdown],
    shown: Sequence[int],
    factor: float,
    row: int | None = None,
) -> None:
    base = [0.0] * len(shown)
    for part in parts_of(of_ranks):
        seconds = [getattr(of_ranks[rank], part) for rank in shown]
        figure.add_bar(
            y=[f"rank {rank}" for rank in shown],
            base=[float(f"{factor * s:.5g}") for s in base],
            x=[float(f"{factor * s:.4g}") for s in seconds],
            name=part,
            orientation="h",
            width=0.7,
            marker={"color": COLOURS[part], "line": {"width": 0}},
            customdata=[short_time(s) for s in seconds],
            hovertemplate=f"%{{y}}: %{{customdata}}<br>{MEANING[part]}<extra>{part}</extra>",
            row=row,
            col=None if row is None else 1,
        )
        base = [a + b for a, b in zip(base, seconds, strict=True)]
    # Else there is room left of 0.
    where = {} if row is None else {"row": row, "col": 1}
    figure.update_xaxes(range=[0, 1.03 * factor * max(base)], **where)


def parts_of(steps: Sequence[Breakdown]) -> list[str]:
    """Those that take time in some of the steps."""
    return [part for part in PARTS if any(getattr(b, part) for b in steps)]


def _on(of_ranks: Sequence[Breakdown], shown: Sequence[int]) -> str:
    which = "" if len(shown) == len(of_ranks) else f", {len(shown)} of them shown"
    return f"on {plural(len(of_ranks), 'rank')}{which}"
