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

from tnt_notebook.dashboard.figures import GREY, GRID, OKABE_ITO
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
    count = min(len(of_ranks), MOST_ROWS)
    shown = [i * (len(of_ranks) - 1) // max(1, count - 1) for i in range(count)]
    longest = max(b.step for b in of_ranks)
    unit, factor = ("ms", 1e3) if longest < 1 else ("s", 1.0)
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
    row = 40 if count <= 8 else 26 if count <= 16 else 16
    which = "" if count == len(of_ranks) else f", {count} of them shown"
    title = f"<b>where a step goes</b> on {plural(len(of_ranks), 'rank')}{which}"
    sentence = textwrap.wrap(limit(of_ranks, sharing), 90)
    figure.update_layout(
        template="none",
        barmode="stack",
        bargap=0.3,
        height=118 + 18 * len(sentence) + row * count,
        margin={"l": 64, "r": 16, "t": 62 + 18 * len(sentence), "b": 44},
        paper_bgcolor="rgba(0,0,0,0)",
        plot_bgcolor="rgba(0,0,0,0)",
        font={"color": GREY, "size": 12},
        title={"text": f"{title}<br><span style='font-size:12px'>{'<br>'.join(sentence)}</span>",
               "font": {"size": 13}, "x": 0, "xref": "paper",
               "y": 1, "yref": "container", "yanchor": "top", "pad": {"t": 10}},
        legend={"orientation": "h", "x": 0, "y": 1, "yanchor": "bottom", "traceorder": "normal"},
    )  # fmt: skip
    figure.update_xaxes(
        title={"text": unit, "standoff": 6, "font": {"size": 12}},
        gridcolor=GRID,
        zeroline=False,
        linecolor=GRID,
    )
    figure.update_yaxes(autorange="reversed", showgrid=False, linecolor=GRID, ticklabelstandoff=6)
    return figure
