"""A step of a pipeline, predicted or measured, in plotly: a row per rank, a box per action.

::

    rank 0   |0|1|2|.....| 0 | 1 | 2 |      numbers are those of micro-batches;
    rank 1     |0| 0 |1| 1 |2| 2 |          grey is idle
                    ms
"""

from __future__ import annotations

from collections.abc import Sequence

import plotly.graph_objects as go

from tnt_notebook.dashboard.figures import OKABE_ITO
from tnt_notebook.dashboard.rows import lay_out, scale_of, some_of
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
    unit, factor = scale_of(step.seconds)
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
    lay_out(figure, len(shown), [_title(step, shown)], unit)
    figure.update_layout(
        barmode="overlay",
        bargap=0.16,
        hovermode="closest",
        uniformtext={"minsize": 8, "mode": "hide"},
    )
    figure.update_xaxes(range=[0, 1.002 * factor * step.seconds])
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
    return some_of(step.ranks, max(2, MOST_BOXES * step.ranks // len(step.spans)))


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
