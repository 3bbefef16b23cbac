"""What stays in the notebook when the live view has ended: MIME bundles that need no kernel."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Any

from tnt_notebook import telemetry
from tnt_notebook.dashboard import assets
from tnt_notebook.dashboard.run_figure import run_figure
from tnt_notebook.dashboard.step_parts import time_html, time_of
from tnt_notebook.dashboard.step_svg import step_html
from tnt_notebook.dashboard.summary import RANKS_WITH_A_LINE, metric_pairs, other_runs, summary
from tnt_notebook.dashboard.wording import clock, number, plural, rate
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
    title: str, ranks: int, frames: Sequence[Frame], state: State, error: str | None
) -> Bundle:
    """The summary as text, and as a picture of the card."""
    text = summary(title, ranks, frames, state, error)
    style = f"<style>{assets.text('card.css')}</style>"
    card = _card_html(title, frames, state, error)
    return {
        "text/plain": text,
        "text/html": f'{style}{card}<pre class="tnt-plain">{escape(text)}</pre>',
    }


def figure_bundle(frames: Sequence[Frame]) -> Bundle:
    """The figure that is kept of the main run, for plotly; words where no step was done."""
    run = telemetry.main_run(frames)
    if not telemetry.epoch_rows(run) and not sum(telemetry.total_samples(run)):
        return {"text/html": "", "text/plain": "No step was done: there is no figure."}
    figure = run_figure(run)
    return {PLOTLY: figure.to_plotly_json(), "text/plain": "Figure: loss, metrics, samples/s."}


def _card_html(title: str, frames: Sequence[Frame], state: State, error: str | None) -> str:
    """The elements of ``widgets/card.js`` as they stood at the end."""
    run = telemetry.main_run(frames)
    took = clock(telemetry.duration(run))
    parts = [
        '<div class="tnt-header"><div class="tnt-title" role="heading" aria-level="3">'
        f"{escape(title)}</div>"
        f'<span class="tnt-pill" data-state="{state}">{state}</span></div>',
        f'<div class="tnt-line"><span class="tnt-where">{_where(run)}</span>'
        f'<span class="tnt-when">took {took}</span></div>',
        f'<p class="tnt-error">{escape(error)}</p>' if error else "",
        _metrics_html(run),
        "".join(f'<div class="tnt-caption">{escape(line)}</div>' for line in other_runs(frames)),
        time_html(time_of(run)),
        step_html(telemetry.last_step(run)),
        _ranks_html(run),
    ]
    body = "".join(parts)
    # Sanitizers drop an attribute without a value.
    return f'<div class="tnt-card tnt-still" data-state="{state}" hidden="hidden">{body}</div>'


def _where(frames: Sequence[Frame]) -> str:
    if not frames or not frames[-1]["epoch"]:
        return "no step was done"
    last = frames[-1]
    step = f"step {last['step']:,}" + (f" of {last['steps']:,}" if last["steps"] else "")
    if last["phase"] != "fit":
        return f"{last['phase']} · {step}"
    return f"epoch {last['epoch']:,} of {last['epochs']:,} · {step}"


def _metrics_html(frames: Sequence[Frame]) -> str:
    tiles = [
        f'<div class="tnt-tile"><div class="tnt-name">{escape(name.replace("_", " "))}</div>'
        f'<div class="tnt-number">{number(value)}</div>'
        + "".join(f'<div class="tnt-validation">validation {number(v)}</div>' for v in val.values())
        + "</div>"
        for name, value, val in metric_pairs(frames)
    ]
    return f'<div class="tnt-metrics">{"".join(tiles)}</div>' if tiles else ""


def _ranks_html(frames: Sequence[Frame]) -> str:
    rates = telemetry.median_rates(frames)
    if not sum(rates):
        return ""
    heading = (
        '<div class="tnt-line tnt-heading"><span>Samples per second</span>'
        f'<span class="tnt-total">{rate(sum(rates) / frames[-1]["sharing"])} in all</span></div>'
    )
    if len(rates) > RANKS_WITH_A_LINE:
        low, high = min(rates), max(rates)
        text = (
            f"slowest: rank {rates.index(low)}, {rate(low)}/s · "
            f"fastest: rank {rates.index(high)}, {rate(high)}/s"
        )
        return f'<div class="tnt-throughput">{heading}<div class="tnt-caption">{text}</div></div>'
    lines = [
        f'<div class="tnt-rank"><span class="tnt-rank-name">rank {rank}</span>'
        f'<div class="tnt-level"><div style="width: {100 * value / max(rates):.1f}%"></div></div>'
        f'<span class="tnt-rate">{rate(value)}</span></div>'
        for rank, value in enumerate(rates)
    ]
    ranks = "".join(lines)
    return f'<div class="tnt-throughput">{heading}<div class="tnt-ranks">{ranks}</div></div>'
