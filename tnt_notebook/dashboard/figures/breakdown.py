"""Where the time of a step goes on each rank, in plotly: a row per rank, a colour per part.

::

    rank 0   |input|      work       |exchange|other|
    rank 1   |input|    work    |skew|exchange|other|
                    ms
"""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

import plotly.graph_objects as go

from tnt_notebook.dashboard.figures.panels import (
    Panel,
    drawn,
    height_of,
    lay_out_rows,
    lines_of,
    scale_of,
    short,
    swatch,
)
from tnt_notebook.dashboard.figures.wording import plural, short_time
from tnt_notebook.telemetry import PARTS, Breakdown
from tnt_notebook.telemetry.sampling import spread

#: More rows would be too thin: then some ranks stand for all.
MOST_ROWS = 64


def figure_of(of_ranks: Sequence[Breakdown], limit: str) -> go.Figure:
    """The median step on each rank, and the sentence that says what limits it."""
    whole = panel(of_ranks, MOST_ROWS)
    lines = (f"<span style='font-size:12px'>{line}</span>" for line in textwrap.wrap(limit, 90))
    return drawn([whole._replace(titles=["<br>".join([*whole.titles, *lines])])])


def panel(of_ranks: Sequence[Breakdown], most_rows: int = 16) -> Panel:
    """The median step on each rank."""
    shown = spread(len(of_ranks), most_rows)
    which = "" if len(shown) == len(of_ranks) else f", {len(shown)} of them shown"
    return panel_of(
        f" on {plural(len(of_ranks), 'rank')}{which}",
        [f"rank {rank}" for rank in shown],
        [of_ranks[rank] for rank in shown],
        height_of(len(shown)),
    )


def panel_of(
    what: str,
    names: Sequence[str],
    steps: Sequence[Breakdown],
    height: int,
    as_shares: bool = False,
) -> Panel:
    """Steps below each other.

    Args:
        what: whose steps they are.
        names: of each step.
        height: in pixels.
        as_shares: whether all are drawn equally long, where the longest is many times as long as
            the shortest.
    """
    unit, per_second = scale_of(max(step.step for step in steps))
    if as_shares:
        unit = "% of a step"
    factors = [100 / step.step if as_shares and step.step else per_second for step in steps]
    parts = [part for part in PARTS if any(getattr(step, part) for step in steps)]

    def draw(figure: go.Figure, row: int) -> None:
        base = [0.0] * len(steps)
        for part in parts:
            seconds = [getattr(step, part) for step in steps]
            figure.add_bar(
                y=list(names),
                base=[short(f * s) for f, s in zip(factors, base, strict=True)],
                x=[short(f * s) for f, s in zip(factors, seconds, strict=True)],
                name=part,
                orientation="h",
                width=0.7,
                marker={"color": PARTS[part].colour, "line": {"width": 0}},
                customdata=[
                    f"{short_time(s)}, {s / step.step if s else 0:.0%} of a step"
                    for s, step in zip(seconds, steps, strict=True)
                ],
                hovertemplate=f"%{{y}}: %{{customdata}}<br>{PARTS[part].meaning}"
                f"<extra>{part}</extra>",
                row=row,
                col=1,
            )
            base = [a + b for a, b in zip(base, seconds, strict=True)]
        ends = [factor * s for factor, s in zip(factors, base, strict=True)]
        lay_out_rows(figure, row, unit, 1.03 * max(ends))

    legend = lines_of(swatch(part, PARTS[part].colour) for part in parts)
    return Panel([f"<b>where a step goes</b>{what}<br>{legend}"], height, draw)
