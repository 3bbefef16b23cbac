"""The figure that a notebook keeps of a run: how it went, its last step, and where a step goes."""

from __future__ import annotations

from collections.abc import Sequence

import plotly.graph_objects as go

from tnt_notebook import telemetry
from tnt_notebook.dashboard import breakdown, step_figure
from tnt_notebook.dashboard.figures import overview
from tnt_notebook.telemetry import Frame


def run_figure(frames: Sequence[Frame]) -> go.Figure:
    """All that there is to see of one run.

    ::

        loss      metrics
        samples per second
        the last step, box by box
        where a step goes

    Args:
        frames: of one run in order, at least one. What they say nothing about is left out.

    Returns:
        A figure of less than 500 kB in JSON.
    """
    more = []
    if (step := telemetry.last_step(frames)) is not None:
        more.append(step_figure.panel(step))
    if of_ranks := telemetry.breakdowns(frames):
        more.append(breakdown.panel(of_ranks))
    figure = overview(frames, more)
    figure.update_layout(barmode="overlay", uniformtext={"minsize": 8, "mode": "hide"})
    return figure
