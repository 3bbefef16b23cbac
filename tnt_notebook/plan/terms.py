"""What a step that was planned consists of, and what limits it."""

from __future__ import annotations

from tnt_notebook.plan.prediction import PipelinePlan

#: Less of a step is not worth a word.
WORTH_A_WORD = 0.05


def seconds_of(plan: PipelinePlan) -> dict[str, float]:
    """Of a step, by term: ``compute`` is what a rank computes in the mean, ``input`` how long its
    batch takes to come; the others are by how much a step would be shorter without them."""
    compute = plan.timeline.work / plan.ranks - plan.losses.actions
    return {"compute": compute, **losses_of(plan), "input": plan.input_s}


def losses_of(plan: PipelinePlan) -> dict[str, float]:
    """By how many seconds a step would be shorter without each of what makes it longer than its
    work: ``bubble``, ``imbalance``, ``messages``, ``exchange``, ``overhead``."""
    losses = plan.losses
    return {
        "bubble": losses.bubble, "imbalance": losses.imbalance, "messages": losses.messages,
        "exchange": plan.exchange_s, "overhead": overhead_s(plan),
    }  # fmt: skip


def parts_of(plan: PipelinePlan) -> dict[str, float]:
    """The same by what can be told of a step that has run; together they are the step.

    ============  =============================================================================
    ``layers``    what a rank computes in the mean
    ``stages``    until other stages have done theirs, messages and beginning actions included
    ``exchange``  of gradients, as far as backward does not hide it
    ``overhead``  Keras's loop, votes, metrics and the optimizer
    ``input``     until it has come, after all of that
    ============  =============================================================================
    """
    layers = seconds_of(plan)["compute"]
    known = layers + plan.exchange_s + plan.beside_s
    return {
        "layers": layers, "stages": max(0.0, plan.compute_s - known), "exchange": plan.exchange_s,
        "overhead": plan.beside_s, "input": max(0.0, plan.input_s - plan.compute_s),
    }  # fmt: skip


def overhead_s(plan: PipelinePlan) -> float:
    """Seconds of a step that are neither of layers nor of what ranks send."""
    return plan.beside_s + plan.losses.actions


def limited_by(plan: PipelinePlan) -> str:
    """What makes a step longer than it need be, in a word; empty: nothing that is worth one."""
    if plan.input is not None and plan.input_s > plan.compute_s:
        return "input"
    losses = losses_of(plan)
    worst = max(losses, key=lambda name: losses[name])
    return worst if losses[worst] >= WORTH_A_WORD * plan.step_s else ""
