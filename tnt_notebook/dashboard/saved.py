"""What stays in the notebook when the live view has ended: MIME bundles that need no kernel."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from html import escape
from typing import Any

from tnt_notebook import telemetry
from tnt_notebook.dashboard import assets
from tnt_notebook.dashboard.figures import metric_figure
from tnt_notebook.dashboard.picture import card_html
from tnt_notebook.dashboard.summary import summary
from tnt_notebook.dashboard.wording import plural
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
    """The card where its styles are, and else its text.

    A front end that does not trust the notebook strips styles. Those of a card may be in the page
    all the same, from another output: so this one's class has a name that no other output knows.
    A page of Bootstrap, as documentation often is, hides what is to be hidden with ``!important``.
    """
    name = f"tnt-{blake2b(inside.encode(), digest_size=6).hexdigest()}"
    style = f"{assets.text('card.css')}\n.{name}[hidden] {{ display: flex !important; }}\n"
    # Sanitizers drop an attribute without a value.
    picture = f'<div class="tnt-card {name}" data-state="{state}" hidden="hidden">{inside}</div>'
    instead = f'<pre class="{name}-instead">{escape(text)}</pre>'
    return f"<style>{style}.{name}-instead {{ display: none; }}</style>{picture}{instead}"


def figure_bundle(frames: Sequence[Frame]) -> Bundle:
    """Loss and metrics of the main run, for plotly; words where there are none."""
    figure = metric_figure(run) if (run := telemetry.main_run(frames)) else None
    if figure is None:
        return {"text/html": "", "text/plain": "No step was done: there is no figure."}
    return {PLOTLY: figure.to_plotly_json(), "text/plain": "Figure: loss, metrics."}
