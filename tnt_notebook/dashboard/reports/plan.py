"""What ``%tnt_plan`` says: what to expect of a pipeline, and what limits it."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

import plotly.graph_objects as go

from tnt_notebook.dashboard.card.saved import PLOTLY, Bundle
from tnt_notebook.dashboard.figures.panels import GREY, scale_of, short
from tnt_notebook.dashboard.figures.step_figure import figure_of, trace_of
from tnt_notebook.dashboard.figures.wording import plural, rate, short_time, size, three_digits
from tnt_notebook.plan.prediction import PipelinePlan
from tnt_notebook.plan.terms import limited_by, losses_of


def headline(plan: PipelinePlan) -> str:
    """What to expect, in a sentence."""
    copies = f" of {plan.replicas} replicas" if plan.replicas > 1 else ""
    formula = (
        ""
        if plan.formula_bubble is None
        else f" (by the formula of {plan.schedule} for {plan.formula_bubble:.0%})"
    )
    return (
        f"Expect {rate(plan.samples_per_s)} samples/s{copies}, "
        f"{three_digits(plan.speedup)} times one rank: a step of "
        f"{plural(plan.batch_size, 'sample')} takes {short_time(plan.step_s)}, and ranks are idle "
        f"for {plan.bubble:.0%} of it{formula}."
    )


def limit(plan: PipelinePlan) -> str:
    """What makes a step longer than it need be, in a sentence."""
    if plan.input is not None and plan.input_s > plan.compute_s:
        return (
            f"Input limits it: ranks compute for {short_time(plan.compute_s)} of a step, and wait "
            f"for the rest. %tnt_bench input {plan.input.dataset} says what it waits for."
        )
    worst = limited_by(plan)
    share = losses_of(plan).get(worst, 0.0) / plan.step_s
    if not worst:
        return "Nothing in particular limits it: ranks are at work nearly all the time."
    if worst == "imbalance":
        return f"{slowest(plan)} With equal stages a step would be {share:.0%} shorter."
    if worst == "exchange":
        return (
            f"Replicas add up gradients for {share:.0%} of a step, while nothing is left to "
            "compute: larger batches lower that."
        )
    if worst == "overhead":
        return (
            f"Beginning steps{' and micro-batches' if plan.losses.actions else ''}, and the "
            f"optimizer, take {share:.0%} of a step: larger batches"
            f"{', or fewer micro-batches,' if plan.losses.actions else ''} lower that."
        )
    if worst == "messages":
        return (
            f"Messages between ranks cost {share:.0%} of a step: fewer micro-batches, or a cut "
            "where less goes from stage to stage, lower that."
        )
    return (
        f"Filling and emptying the pipeline costs {share:.0%} of a step: more micro-batches, or "
        "another schedule, lower that."
    )


def read(plan: PipelinePlan) -> str:
    """What input delivers, and which ranks map what, in a sentence; empty: it is not known."""
    given = plan.input
    if given is None:
        return ""
    part = "all" if plan.replicas == 1 else f"its own 1/{plan.replicas}"
    who = given.reading or f"each {'pipeline' if plan.ranks > 1 else 'rank'} maps {part}"
    return (
        f"Input: {given.dataset} delivers {rate(given.samples_per_s)} samples/s, a batch in "
        f"{short_time(plan.input_s)}, while ranks compute for {short_time(plan.compute_s)}; {who}."
    )


def memory(plan: PipelinePlan) -> str:
    """How much a rank needs, in a sentence."""
    most = max(plan.rank_bytes)
    return (
        f"Rank {plan.rank_bytes.index(most)} needs most memory, {size(most)}: weights, gradients, "
        "optimizer state and activations."
    )


def comparison(plans: Sequence[PipelinePlan]) -> str:
    """Which schedule is the fastest and which needs least memory, in a sentence."""
    best = fastest(plans)
    small = min(plans, key=lambda plan: (max(plan.rank_bytes), plan.step_s))
    needs, most = size(max(small.rank_bytes)), size(max(best.rank_bytes))
    if needs == most:
        return f"{best.schedule} is the fastest, and needs least memory, {needs} a rank."
    as_fast = "is as fast within 1%, and " if small.step_s <= 1.01 * best.step_s else ""
    return (
        f"{best.schedule} is the fastest; {small.schedule} {as_fast}needs least memory, {needs} a "
        f"rank instead of {most}."
    )


def fastest(plans: Sequence[PipelinePlan]) -> PipelinePlan:
    """The one whose step is shortest; of equal ones the one that needs least memory."""
    return min(plans, key=lambda plan: (plan.step_s, max(plan.rank_bytes)))


def figure_bundle(plan: PipelinePlan) -> Bundle:
    """The timeline as it stays in a notebook."""
    figure = figure_of(trace_of(plan.timeline), measured=False)
    if plan.input is not None:
        _draw_input(figure, plan)
    return {
        PLOTLY: figure.to_plotly_json(),
        "text/plain": f"Figure: timeline of a step of {plan.schedule} on "
        f"{plural(plan.ranks, 'rank')}.",
    }


def _draw_input(figure: go.Figure, plan: PipelinePlan) -> None:
    """A line where the input of the next step is there; the axis reaches as far."""
    _, factor = scale_of(plan.compute_s)
    at = short(plan.input_s * factor)
    figure.add_vline(x=at, line={"color": GREY, "dash": "dash", "width": 1.5})
    late = plan.input_s > 0.7 * plan.step_s
    figure.add_annotation(
        x=at, xanchor="right" if late else "left", y=0, yref="paper", yanchor="bottom",
        text=f"input of a batch: {short_time(plan.input_s)}", showarrow=False,
        font={"size": 11, "color": GREY}, xshift=-4 if late else 4,
    )  # fmt: skip
    figure.update_xaxes(range=[0, short(1.02 * plan.step_s * factor)])


def slowest(plan: PipelinePlan) -> str:
    """Which stage is slower than the others, by how much."""
    times = [stage.forward_s + stage.backward_s for stage in plan.stages]
    slow = plan.stages[times.index(max(times))]
    faster = [stage for stage in plan.stages if stage is not slow]
    others = fmean(stage.forward_s + stage.backward_s for stage in faster)
    rest = "the others, and they wait for it."
    if len(faster) == 1:
        rest = f"stage {faster[0].number}, which waits for it."
    between = slow.first if slow.layers == 1 else f"{slow.first} to {slow.last}"
    factor = three_digits(max(times) / others) if others else "infinitely many"
    return f"Stage {slow.number} ({between}) takes {factor} times as long as {rest}"
