"""What a step that was planned consists of, term by term, in sentences: how long each takes, where
it comes from, and what lowers it."""

from __future__ import annotations

from collections.abc import Callable

from tnt_notebook.dashboard.figures.wording import plural, rate, short_time, size
from tnt_notebook.dashboard.reports.plan import slowest
from tnt_notebook.errors import PlanError
from tnt_notebook.plan.prediction import PipelinePlan
from tnt_notebook.plan.stages import PARTS
from tnt_notebook.plan.terms import seconds_of
from tnt_notebook.plan.traffic import traffic_of
from tnt_notebook.words import meant


def explain(plan: PipelinePlan, term: str) -> str:
    """A term of a plan.

    Raises:
        PlanError: there is no such term; the message says which there are.
    """
    if term not in TERMS:
        near = meant(term, {one: one for one in TERMS})
        raise PlanError(f"A plan has no term {term!r}{near or ':'} {', '.join(TERMS)}")
    return TERMS[term](plan)


def _compute(plan: PipelinePlan) -> str:
    stages = "; ".join(
        f"stage {s.number} on rank {s.rank} {short_time(s.forward_s)} forward and "
        f"{short_time(s.backward_s)} backward"
        for s in plan.stages[:_MOST]
    )
    twice = " Recomputation is in the backwards: without it they are shorter, and need more memory."
    return (
        f"A rank computes for {_of_step(plan, 'compute')} on average, for "
        f"{plural(plan.micro_batches, 'micro-batch', 'micro-batches')} of "
        f"{plural(plan.rows, 'sample')}: of each, {stages}{_more(plan)}."
        f"{twice if plan.recompute else ''} More ranks share it among them; smaller batches lower "
        "it, and samples/s with it."
    )


def _bubble(plan: PipelinePlan) -> str:
    if plan.ranks == 1:
        return "There is no bubble: a rank has the whole model, and waits for no other stage."
    by_formula, formula = plan.formula_bubble, ""
    if by_formula is not None:
        formula = f" With equal stages and free messages it is {by_formula:.0%} by the formula."
    return (
        f"Ranks wait for {_of_step(plan, 'bubble')} until the first micro-batch has come through "
        f"the stages before, and after their last one: {plan.schedule} sends "
        f"{plural(plan.micro_batches, 'micro-batch', 'micro-batches')} through "
        f"{plural(len(plan.stages), 'stage')} on {plural(plan.ranks, 'rank')}.{formula} More "
        "micro-batches, fewer stages, or a schedule that splits backward (zb-h1, zb-v) lower it."
    )


def _imbalance(plan: PipelinePlan) -> str:
    if len(plan.stages) == 1:
        return "There is no imbalance: there is one stage, and all ranks have the same work."
    return (
        f"Stages that take different times cost {_of_step(plan, 'imbalance')}. {slowest(plan)} "
        "Another cut (--cut-at), or fewer stages, lower it; one layer is never divided: that takes "
        "a mesh."
    )


def _messages(plan: PipelinePlan) -> str:
    if len(plan.stages) == 1:
        return "There are no messages between stages: there is one."
    sent = sum(stage.sent_bytes for stage in plan.stages)
    return (
        f"Messages between stages cost {_of_step(plan, 'messages')}: a replica sends "
        f"{size(sent)} forward and about as much back for a micro-batch, "
        f"{size(2 * sent * plan.micro_batches)} in a step. Fewer micro-batches, or a cut where "
        "less goes from stage to stage, lower it."
    )


def _exchange(plan: PipelinePlan) -> str:
    if plan.replicas == 1:
        return "There is no exchange: there is one replica, and no other has gradients of it."
    gradients = [0] * plan.ranks
    for stage in plan.stages:
        gradients[stage.rank] += stage.memory.gradients
    shared = (
        " A rank adds up those of its share of the weights, trains these, and gives the others the "
        "new ones, which nothing hides (sharded)."
    )
    traffic = traffic_of(plan.exchange)
    behind = "the next step" if traffic.late else "backward"
    return (
        f"Adding up gradients costs {_of_step(plan, 'exchange')} beyond what {behind} hides: "
        f"{plural(plan.replicas, 'replica')} add up {size(max(gradients))} of the rank that has "
        "most. Larger batches have fewer steps, and so fewer exchanges; more stages leave each "
        f"rank fewer gradients.{shared if traffic.on_owners else ''}"
    )


def _overhead(plan: PipelinePlan) -> str:
    actions = plan.losses.actions
    begun = f", and {short_time(actions)} of beginning what is done of micro-batches"
    return (
        f"What is neither of layers nor sent takes {_of_step(plan, 'overhead')}: "
        f"{short_time(plan.beside_s)} of Keras's loop, votes, metrics and the optimizer"
        f"{begun if actions else ''}. Larger batches have fewer steps; fewer micro-batches begin "
        "less often."
    )


def _input(plan: PipelinePlan) -> str:
    read = plan.input
    if read is None:
        return (
            "Nothing is known of input. %tnt_plan --pipeline P --input DATASET measures what a "
            "dataset of the cells delivers."
        )
    late = plan.input_s > plan.compute_s
    effect = (
        f"a step waits {short_time(plan.input_s - plan.compute_s)} for it"
        if late
        else f"it is there before the {short_time(plan.compute_s)} are over that ranks compute"
    )
    return (
        f"A batch takes {short_time(plan.input_s)} to come: {read.dataset} delivers "
        f"{rate(read.samples_per_s)} samples/s, and {effect}. "
        f"%tnt_bench input {read.dataset} says what it waits for, and what makes it faster."
    )


def _memory(plan: PipelinePlan) -> str:
    most = max(plan.rank_bytes)
    rank = plan.rank_bytes.index(most)
    own = [stage for stage in plan.stages if stage.rank == rank]
    parts = {part: sum(getattr(stage.memory, part) for stage in own) for part in PARTS}
    told = ", ".join(f"{part} {size(count)}" for part, count in parts.items() if count)
    held = max(stage.held for stage in own)
    under_way = plural(held, "micro-batch", "micro-batches")
    lower = f"Smaller batches, more stages{'' if plan.recompute else ', --recompute'}"
    return (
        f"Rank {rank} of a replica needs most, {size(most)}: {told}, with {under_way} under way at "
        f"most. {lower} or an optimizer with less state lower it."
    )


#: What a plan can tell of.
TERMS: dict[str, Callable[[PipelinePlan], str]] = {
    "compute": _compute, "bubble": _bubble, "imbalance": _imbalance, "messages": _messages,
    "exchange": _exchange, "overhead": _overhead, "input": _input, "memory": _memory,
}  # fmt: skip

_MOST = 8  # stages that are told of


def _more(plan: PipelinePlan) -> str:
    return f"; and {len(plan.stages) - _MOST} more" if len(plan.stages) > _MOST else ""


def _of_step(plan: PipelinePlan, term: str) -> str:
    """``3.4 ms (12% of a step)``"""
    seconds = seconds_of(plan)[term]
    return f"{short_time(seconds)} ({seconds / plan.step_s:.0%} of a step)"
