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

from tnt_notebook.dashboard.figures import OKABE_ITO
from tnt_notebook.dashboard.rows import lay_out, scale_of, some_of
from tnt_notebook.dashboard.wording import plural, short_time
from tnt_notebook.telemetry import PARTS, Breakdown
from tnt_notebook.telemetry.limit import limit

#: More rows would be too thin: then some ranks stand for all.
MOST_ROWS = 64

_COLOURS = {
    "input": OKABE_ITO[4],
    "work": OKABE_ITO[0],
    "wait": "rgba(128,128,128,0.35)",
    "exchange": OKABE_ITO[3],
    "other": "rgba(128,128,128,0.7)",
}
_MEANING = {
    "input": "waits for its batch",
    "work": "forward and backward",
    "wait": "waits for other ranks of the pipeline",
    "exchange": "exchange of gradients that nothing hides, and waiting for slower ranks",
    "other": "optimizer, metrics, Python",
}


def figure_of(of_ranks: Sequence[Breakdown], sharing: int = 1) -> go.Figure:
    """The mean step of each rank, and what limits it."""
    shown = some_of(len(of_ranks), MOST_ROWS)
    unit, factor = scale_of(max(b.step for b in of_ranks))
    figure = go.Figure()
    for part in PARTS:
        seconds = [getattr(of_ranks[rank], part) for rank in shown]
        if not any(seconds):
            continue
        figure.add_bar(
            y=[f"rank {rank}" for rank in shown],
            x=[float(f"{factor * s:.4g}") for s in seconds],
            name=part,
            orientation="h",
            marker={"color": _COLOURS[part], "line": {"width": 0}},
            customdata=[short_time(s) for s in seconds],
            hovertemplate=f"%{{y}}: %{{customdata}}<br>{_MEANING[part]}<extra>{part}</extra>",
        )
    which = "" if len(shown) == len(of_ranks) else f", {len(shown)} of them shown"
    sentence = textwrap.wrap(limit(of_ranks, sharing), 90)
    title = [
        f"<b>where a step goes</b> on {plural(len(of_ranks), 'rank')}{which}",
        *(f"<span style='font-size:12px'>{line}</span>" for line in sentence),
    ]
    lay_out(figure, len(shown), title, unit)
    figure.update_layout(barmode="stack", bargap=0.3)
    return figure
