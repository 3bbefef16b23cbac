"""What ``%tnt_plan`` shows as text: a row for each stage, or for each schedule."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape

from tnt_notebook.dashboard.plan import comparison, fastest, headline, limit, memory
from tnt_notebook.dashboard.wording import rate, short_time, size, three_digits
from tnt_notebook.magics.table import aligned, html
from tnt_notebook.plan.prediction import PipelinePlan

_BEST = "*"
_SHORT = 40  # characters of the names of a stage's first and last layer

Cells = list[list[str]]


def plan_text(plan: PipelinePlan) -> str:
    """What to expect, and tables of the stages, for a monospaced font."""
    head, rows = _times(plan)
    memory_head, memory_rows = _memory(plan)
    return "\n\n".join(
        [
            f"{headline(plan)}\n{limit(plan)}",
            aligned(head, rows, {*head} - {"from, to"}),
            aligned(memory_head, memory_rows, set(memory_head)),
            memory(plan),
        ]
    )


def plan_html(plan: PipelinePlan) -> str:
    """The same for a browser, which gives tables its own style."""
    head, rows = _times(plan)
    memory_head, memory_rows = _memory(plan)
    return (
        f"<p><b>{escape(headline(plan))}</b> {escape(limit(plan))}</p>"
        f"{html(head, _plain(rows), {'from, to'})}<p>{escape(memory(plan))}</p>"
        f"<details><summary>memory of the stages, by what it is for</summary>"
        f"{html(memory_head, _plain(memory_rows))}</details>"
    )


def comparison_text(plans: Sequence[PipelinePlan], refused: Mapping[str, str]) -> str:
    """Schedules beside each other, for a monospaced font.

    Args:
        plans: at least one.
        refused: schedules of which there is no plan, and why.
    """
    best = fastest(plans)
    head, rows = _schedules(plans)
    marked = [
        [row[0] + (_BEST if plan is best else " "), *row[1:]]
        for plan, row in zip(plans, rows, strict=True)
    ]
    reasons = [f"{name}: {why}" for name, why in refused.items()]
    return "\n\n".join(
        [
            comparison(plans),
            aligned(head, marked, set(head[1:])),
            *(["\n".join(reasons)] if reasons else []),
        ]
    )


def comparison_html(plans: Sequence[PipelinePlan], refused: Mapping[str, str]) -> str:
    """The same for a browser."""
    head, rows = _schedules(plans)
    best = fastest(plans)
    marked = [[(text, plan is best) for text in row] for plan, row in zip(plans, rows, strict=True)]
    reasons = "".join(f"<p>{escape(name)}: {escape(why)}</p>" for name, why in refused.items())
    return f"<p><b>{escape(comparison(plans))}</b></p>{html(head, marked, {'schedule'})}{reasons}"


def _plain(rows: Cells) -> list[list[tuple[str, bool]]]:
    return [[(text, False) for text in row] for row in rows]


def _times(plan: PipelinePlan) -> tuple[list[str], Cells]:
    head = [
        "stage",
        "rank",
        "from, to",
        "layers",
        "parameters",
        "forward",
        "backward",
        "busy",
        "sends",
        "memory",
    ]
    rows = [
        [
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
        ]
        for stage in plan.stages
    ]
    return head, rows


def _memory(plan: PipelinePlan) -> tuple[list[str], Cells]:
    head = ["stage", "weights", "gradients", "optimizer", "activations", "held at most", "in all"]
    rows = [
        [
            str(stage.number),
            size(stage.memory.weights),
            size(stage.memory.gradients),
            size(stage.memory.optimizer),
            size(stage.memory.activations),
            f"{stage.held} of {plan.micro_batches}",
            size(stage.memory.total),
        ]
        for stage in plan.stages
    ]
    return head, rows


def _schedules(plans: Sequence[PipelinePlan]) -> tuple[list[str], Cells]:
    head = ["schedule", "stages", "step", "samples/s", "speedup", "idle", "by formula", "memory"]
    rows = [
        [
            plan.schedule,
            str(len(plan.stages)),
            short_time(plan.step_s),
            rate(plan.samples_per_s),
            three_digits(plan.speedup),
            f"{plan.bubble:.0%}",
            "-" if plan.formula_bubble is None else f"{plan.formula_bubble:.0%}",
            size(max(plan.rank_bytes)),
        ]
        for plan in plans
    ]
    return head, rows


def _between(first: str, last: str, layers: int) -> str:
    if layers == 1:
        return _shortened(first, _SHORT)
    return f"{_shortened(first, _SHORT // 2)} … {_shortened(last, _SHORT // 2)}"


def _shortened(name: str, most: int) -> str:
    """The end of a long name says more than its beginning."""
    return name if len(name) <= most else f"…{name[-most + 1 :]}"
