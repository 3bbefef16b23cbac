"""What to expect of a model by the number of ranks, in words and as a figure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tnt_notebook.dashboard.card.saved import PLOTLY, Bundle
from tnt_notebook.dashboard.figures.ranks_figure import figure_of
from tnt_notebook.dashboard.figures.wording import plural, rate
from tnt_notebook.plan.by_ranks import WORTH_RANKS, held_back_by, levels_off
from tnt_notebook.plan.prediction import PipelinePlan
from tnt_notebook.plan.shares import in_words
from tnt_notebook.plan.sharing import is_sharded

#: Why more ranks add little, by the part of a step that does not shrink with them.
_WHY = {
    "layers": "what a rank does for its layers shrinks less than its samples",
    "stages": "ranks wait for other stages",
    "exchange": "adding up gradients takes no less time on more ranks",
    "overhead": "what a step takes beside its layers (Keras's loop, votes, the optimizer) remains",
}


def growth(rows: Sequence[dict[str, Any]], batch_size: int) -> str:
    """From which number of ranks on more add little, and why, in a sentence or two; empty where
    there is only one number.

    Args:
        rows: of :mod:`tnt_notebook.plan.by_ranks`.
        batch_size: samples of a batch.
    """
    if len(rows) < 2:
        return ""
    place, last = levels_off(rows), rows[-1]
    batches = f"batches of {plural(batch_size, 'sample')}"
    if place is None:
        return (
            f"With {batches}, more ranks help up to {last['ranks']:,} at least: they would train "
            f"{rate(last['samples_per_s'])} samples/s."
        )
    few, more = rows[place], rows[place + 1]
    part = held_back_by(few, more)
    share = more[f"{part}_s"] / more["step_s"]
    return (
        f"With {batches}, more ranks than {few['ranks']:,} hardly help: twice as many add less "
        f"than {WORTH_RANKS:.0%}, since {_WHY[part]}, {share:.0%} of a step on "
        f"{more['ranks']:,}. Larger batches use more ranks."
    )


def shape(plan: PipelinePlan) -> str:
    """How ranks share the work: ``2 replicas of a 4-stage pipeline``; by stages as typed, which are
    ranks."""
    if plan.ranks == 1:
        copies = "one whole copy" if plan.replicas == 1 else f"{plan.replicas:,} whole copies"
    else:
        pipeline = f"a {plan.ranks}-stage pipeline"
        copies = pipeline if plan.replicas == 1 else f"{plan.replicas:,} replicas of {pipeline}"
    divided = f", each layer divided among {plan.parts} ranks" if plan.parts > 1 else ""
    shared = ", which share out the optimizer's state" if is_sharded(plan.exchange) else ""
    uneven = f", with {in_words(plan.shares)}" if plan.shares else ""
    return f"{copies}{divided}{uneven}{shared}"


def figure_bundle(rows: Sequence[dict[str, Any]], asked: int) -> Bundle:
    """The figure as it stays in a notebook.

    Args:
        asked: the ranks that were asked for.
    """
    numbers = ", ".join(f"{row['ranks']:,}" for row in rows)
    return {
        PLOTLY: figure_of(rows, asked).to_plotly_json(),
        "text/plain": f"Figure: samples per second on {numbers} ranks.",
    }
