"""What stays in the notebook when the live view has ended: MIME bundles that need no kernel."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Any

from tnt_notebook import telemetry
from tnt_notebook.dashboard import assets
from tnt_notebook.dashboard.figures import run_figure
from tnt_notebook.dashboard.picture import card_html
from tnt_notebook.dashboard.summary import summary
from tnt_notebook.dashboard.wording import plural
from tnt_notebook.telemetry import Frame, State

Bundle = dict[str, Any]

PLOTLY = "application/vnd.plotly.v1+json"


def placeholder(title: str, ranks: int) -> Bundle:
    """Where the figure will be: nothing to see in a browser, one line elsewhere."""
    return {
        "text/html": "",
        "text/plain": f"{title} on {plural(ranks, 'rank')}: the figure comes at the end",
    }


def summary_bundle(
    title: str,
    ranks: int,
    frames: Sequence[Frame],
    state: State,
    error: str | None,
    traceback: str = "",
) -> Bundle:
    """The summary as text, and as a picture of the card."""
    text = summary(title, ranks, frames, state, error, traceback)
    style = f"<style>{assets.text('card.css')}</style>"
    instead = f'<pre class="tnt-without-styles">{escape(text)}</pre>'
    picture = card_html(title, frames, state, error, traceback)
    return {"text/plain": text, "text/html": style + picture + instead}


def figure_bundle(frames: Sequence[Frame]) -> Bundle:
    """The figure that is kept of the main run, for plotly; words where no step was done."""
    run = telemetry.main_run(frames)
    if not telemetry.epoch_rows(run) and not sum(telemetry.total_samples(run)):
        return {"text/html": "", "text/plain": "No step was done: there is no figure."}
    figure = run_figure(run)
    return {PLOTLY: figure.to_plotly_json(), "text/plain": "Figure: loss, metrics, samples/s."}
