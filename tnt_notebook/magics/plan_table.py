"""What ``%tnt_plan`` shows beside the figure: a row for each stage, or for each schedule."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tnt_notebook.dashboard.plan import comparison, fastest, headline, limit, memory
from tnt_notebook.dashboard.wording import rate, short_time, size, three_digits
from tnt_notebook.magics.table import Bold, Table, bundle
from tnt_notebook.plan.prediction import PipelinePlan

_SHORT = 40  # characters of the names of a stage's first and last layer


def plan_bundle(plan: PipelinePlan) -> dict[str, str]:
    """What to expect, and tables of the stages."""
    head = ("stage", "rank", "from, to", "layers", "parameters", "forward", "backward", "busy",
            "sends", "memory")  # fmt: skip
    rows = [
        (
            str(stage.number),
            str(stage.rank),
            _between(stage.first, stage.last, stage.layers),
            str(stage.layers),
            f"{stage.parameters:,}",
            short_time(stage.forward_s),
            short_time(stage.backward_s),
            f"{plan.micro_batches * (stage.forward_s + stage.backward_s) / plan.step_s:.0%}",
            size(stage.sent_bytes) if stage.sent_bytes else "-",
            size(stage.memory.total),
        )
        for stage in plan.stages
    ]
    parts = ("weights", "gradients", "optimizer", "activations")
    needs = [
        (
            str(stage.number),
            *(size(getattr(stage.memory, part)) for part in parts),
            f"{stage.held} of {plan.micro_batches}",
            size(stage.memory.total),
        )
        for stage in plan.stages
    ]
    return bundle(
        Bold(f"{headline(plan)}\n{limit(plan)}"),
        Table(head, rows, left={"from, to"}),
        Table(
            ("stage", *parts, "held at most", "in all"), needs,
            folded="memory of the stages, by what it is for",
        ),
        memory(plan),
    )  # fmt: skip


def comparison_bundle(plans: Sequence[PipelinePlan], refused: Mapping[str, str]) -> dict[str, str]:
    """Schedules beside each other.

    Args:
        plans: at least one.
        refused: schedules of which there is no plan, and why.
    """
    head = ("schedule", "stages", "step", "samples/s", "speedup", "idle", "by formula", "memory")
    rows = [
        (
            plan.schedule,
            str(len(plan.stages)),
            short_time(plan.step_s),
            rate(plan.samples_per_s),
            three_digits(plan.speedup),
            f"{plan.bubble:.0%}",
            "-" if plan.formula_bubble is None else f"{plan.formula_bubble:.0%}",
            size(max(plan.rank_bytes)),
        )
        for plan in plans
    ]
    best = {(plans.index(fastest(plans)), "schedule")}
    reasons = "\n".join(f"{name}: {why}" for name, why in refused.items())
    table = Table(head, rows, left={"schedule"}, best=best)
    return bundle(Bold(comparison(plans)), table, *filter(None, [reasons]))


def _between(first: str, last: str, layers: int) -> str:
    if layers == 1:
        return _shortened(first, _SHORT)
    return f"{_shortened(first, _SHORT // 2)} … {_shortened(last, _SHORT // 2)}"


def _shortened(name: str, most: int) -> str:
    """The end of a long name says more than its beginning."""
    return name if len(name) <= most else f"…{name[-most + 1 :]}"
