"""What stays in the notebook when the live view has ended: MIME bundles that need no kernel."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Any

from tnt_notebook import telemetry
from tnt_notebook.dashboard.card import assets
from tnt_notebook.dashboard.card.picture import card_html
from tnt_notebook.dashboard.figures.figures import metric_figure
from tnt_notebook.dashboard.figures.summary import summary
from tnt_notebook.dashboard.figures.wording import plural
from tnt_notebook.telemetry import Frame, State
from tnt_notebook.telemetry.activities import Ribbon

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
    ribbon: Ribbon,
    traceback: str = "",
) -> Bundle:
    """The summary as text, and as a picture of the card."""
    text = summary(title, ranks, frames, state, error, traceback, ribbon.seconds)
    inside = card_html(title, frames, state, error, ribbon, traceback)
    return {"text/plain": text, "text/html": _picture(inside, state, text)}


def _picture(inside: str, state: State, text: str) -> str:
    """The card where its style is, and else its words, as ``widgets/card.css`` has it."""
    style = f"<style>{assets.text('card.css')}</style>"
    # Sanitizers drop an attribute without a value.
    picture = f'<div class="tnt-card" data-state="{state}" hidden="hidden">{inside}</div>'
    return f'{style}{picture}<pre class="tnt-words">{escape(text)}</pre>'


def figure_bundle(frames: Sequence[Frame]) -> Bundle:
    """Loss and metrics of the main run, for plotly; words where there are none."""
    figure = metric_figure(run) if (run := telemetry.main_run(frames)) else None
    if figure is None:
        return {"text/html": "", "text/plain": "No step was done: there is no figure."}
    return {PLOTLY: figure.to_plotly_json(), "text/plain": "Figure: loss, metrics."}
