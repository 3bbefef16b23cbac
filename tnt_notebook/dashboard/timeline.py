"""A step of a pipeline, predicted or measured, in plotly: a row per rank, a box per action.

::

    rank 0   |0|1|2|.....| 0 | 1 | 2 |      numbers are those of micro-batches;
    rank 1     |0| 0 |1| 1 |2| 2 |          grey is idle
                    ms
"""

from __future__ import annotations

from collections.abc import Sequence

import plotly.graph_objects as go

from tnt_notebook.dashboard.figures import GREY, GRID, OKABE_ITO
from tnt_notebook.dashboard.wording import plural, short_time
from tnt_notebook.parallel.pipeline.schedule import Kind
from tnt_notebook.parallel.pipeline.simulate import Span, Timeline

#: More would make the notebook large: then some ranks stand for all.
MOST_BOXES = 1500

_IDLE = "rgba(128,128,128,0.18)"
#: What an action is called, its colour, and that of the number on it.
_KINDS: dict[Kind, tuple[str, str, str]] = {
    "F": ("forward", OKABE_ITO[0], "white"),
    "B": ("backward", OKABE_ITO[1], "white"),
    "I": ("input gradient", OKABE_ITO[4], "black"),
    "W": ("weight gradient", OKABE_ITO[2], "white"),
}
_FADED = 0.62  # opacity of a rank's second stage


def figure_of(step: Timeline) -> go.Figure:
    """When each rank does what in a step.

    Returns:
        A figure of less than 300 kB in JSON.
    """
    shown = _ranks_shown(step)
    unit, factor = ("ms", 1e3) if step.seconds < 1 else ("s", 1.0)
    figure = go.Figure()
    figure.add_bar(
        y=[f"rank {rank}" for rank in shown],
        x=[_short(factor * step.seconds)] * len(shown),
        name="idle",
        orientation="h",
        marker={"color": _IDLE, "line": {"width": 0}},
        hovertemplate=[
            f"rank {rank} is idle for {step.idle(rank):.0%} of a step<extra></extra>"
            for rank in shown
        ],
        legendrank=2000,  # the last
    )
    first = {span.rank: span.action.stage for span in reversed(_from_low_to_high(step))}
    for kind in _KINDS:
        spans = [s for s in step.spans if s.action.kind == kind and s.rank in shown]
        if spans:
            _draw(figure, first, kind, spans, factor)
    row = 40 if len(shown) <= 8 else 26 if len(shown) <= 16 else 16
    figure.update_layout(
        template="none",
        height=118 + row * len(shown),
        margin={"l": 64, "r": 16, "t": 62, "b": 44},
        paper_bgcolor="rgba(0,0,0,0)",
        plot_bgcolor="rgba(0,0,0,0)",
        font={"color": GREY, "size": 12},
        barmode="overlay",
        bargap=0.16,
        hovermode="closest",
        uniformtext={"minsize": 8, "mode": "hide"},
        title={"text": _title(step, shown), "font": {"size": 13}, "x": 0, "xref": "paper",
               "y": 1, "yref": "container", "yanchor": "top", "pad": {"t": 10}},
        legend={"orientation": "h", "x": 0, "y": 1, "yanchor": "bottom", "traceorder": "normal"},
    )  # fmt: skip
    figure.update_xaxes(
        title={"text": unit, "standoff": 6, "font": {"size": 12}},
        range=[0, 1.002 * factor * step.seconds],
        gridcolor=GRID,
        zeroline=False,
        linecolor=GRID,
    )
    figure.update_yaxes(autorange="reversed", showgrid=False, linecolor=GRID, ticklabelstandoff=6)
    return figure


def _draw(
    figure: go.Figure, first: dict[int, int], kind: Kind, spans: Sequence[Span], factor: float
) -> None:
    """Boxes of one kind; those of a rank's later stages are faint."""
    name, colour, ink = _KINDS[kind]
    figure.add_bar(
        y=[f"rank {span.rank}" for span in spans],
        base=[_short(factor * span.begin) for span in spans],
        x=[_short(factor * (span.end - span.begin)) for span in spans],
        name=name,
        orientation="h",
        marker={
            "color": colour,
            "opacity": [1 if span.action.stage == first[span.rank] else _FADED for span in spans],
            "line": {"color": "rgba(255,255,255,0.7)", "width": 1},
        },
        text=[str(span.action.micro) for span in spans],
        textposition="inside",
        insidetextanchor="middle",
        textangle=0,
        textfont={"color": ink, "size": 11},
        customdata=[
            f"micro-batch {s.action.micro}, stage {s.action.stage}<br>"
            f"from {short_time(s.begin)} to {short_time(s.end)}: {short_time(s.end - s.begin)}"
            for s in spans
        ],
        hovertemplate="%{customdata}<extra>%{fullData.name}</extra>",
    )


def _from_low_to_high(step: Timeline) -> list[Span]:
    return sorted(step.spans, key=lambda span: span.action.stage)


def _ranks_shown(step: Timeline) -> list[int]:
    room = max(2, MOST_BOXES * step.ranks // len(step.spans))
    if step.ranks <= room:
        return list(range(step.ranks))
    return [i * (step.ranks - 1) // (room - 1) for i in range(room)]


def _title(step: Timeline, shown: Sequence[int]) -> str:
    which = "" if len(shown) == step.ranks else f", {len(shown)} of them shown"
    several = len({span.action.stage for span in step.spans}) > step.ranks
    faded = ", a rank's second stage is faint" if several else ""
    how = "measured" if step.measured else "predicted"
    return (
        f"<b>a step of {step.schedule}</b>, as {how}: "
        f"{plural(step.micro_batches, 'micro-batch', 'micro-batches')} on "
        f"{plural(step.ranks, 'rank')}{which}, idle for {step.bubble:.0%} of it{faded}"
    )


def _short(value: float) -> float:
    """Five digits: more would only make the notebook larger."""
    return float(f"{value:.5g}")
