"""``%tnt_plan``: has rank 0 measure a model, and shows what to expect of it in a pipeline."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tnt_notebook.dashboard.figures.wording import rate, short_time, size, three_digits
from tnt_notebook.dashboard.reports.plan import (
    comparison,
    fastest,
    figure_bundle,
    headline,
    limit,
    memory,
    read,
)
from tnt_notebook.errors import DataError, ModelError
from tnt_notebook.magics.mesh_plan import layers_of
from tnt_notebook.magics.planning import asked, measured_link, measured_overheads, shown_on
from tnt_notebook.magics.progress import StatusLine, show
from tnt_notebook.magics.table import Bold, Table, below, bundle
from tnt_notebook.plan.mesh import DATA, Mesh
from tnt_notebook.plan.outcome import record
from tnt_notebook.plan.prediction import InputPlan, PipelinePlan, from_json, with_input
from tnt_notebook.plan.stages import PARTS
from tnt_notebook.protocol import Call

if TYPE_CHECKING:
    from tnt_notebook.cluster import Cluster

_INPUT_S = 1.5  # of measuring what input delivers
_SHORT = 40  # characters of the names of a stage's first and last layer


def run(
    cluster: Cluster,
    name: str,
    pipeline: dict[str, Any],
    schedules: Sequence[str],
    batch_size: int,
    dataset: str | None = None,
    mesh: Mesh | None = None,
    hints: dict[str, dict[str, str]] | None = None,
    exchange: str | None = None,
) -> list[PipelinePlan]:
    """Plans and shows.

    Args:
        name: of the model on the ranks.
        pipeline: keyword arguments of ``tnt_notebook.Pipeline``.
        schedules: one, or several to compare.
        dataset: the name on the ranks of what is read; it is measured, too. None: not known.
        mesh: along whose axes the work of stages is divided, of any number of ranks.
        hints: as :func:`tnt_notebook.plan.hints.parsed_hints` gives them.
        exchange: of replicas, as it is typed; None: an allreduce.

    Returns:
        The plan with each schedule that there can be.

    Raises:
        ModelError, ScheduleError, MeshError, DataError: there is no plan; the message says why.
        RankError: it failed on rank 0.
    """
    status = StatusLine()
    given = None
    if dataset is not None:
        replicas = mesh.along(DATA) if mesh else max(1, cluster.ranks // pipeline["stages"])
        given = _measured(cluster, dataset, replicas, status)
    overheads, fits = measured_overheads(cluster, status, name, batch_size)
    link = measured_link(cluster, status)
    answer = asked(
        cluster, status, Call.PLAN, name, pipeline, list(schedules), batch_size,
        str(mesh) if mesh else None, hints, link, overheads, exchange,
    )  # fmt: skip
    refused = {p["schedule"]: p["refused"] for p in answer["plans"] if "refused" in p}
    plans = [from_json(p) for p in answer["plans"] if "refused" not in p]
    if given is not None:
        plans = [with_input(plan, given) for plan in plans]
    if not plans:
        first, why = next(iter(refused.items()))
        raise ModelError(f"There is no schedule for it. {first}: {why}")
    table = comparison_bundle(plans, refused) if len(schedules) > 1 else plan_bundle(plans[0])
    show(below(table, record(fits)), figure_bundle(fastest(plans)))
    return plans


def _measured(
    cluster: Cluster,
    dataset: str,
    replicas: int,
    status: StatusLine,
) -> InputPlan:
    """What a dataset delivers when so many replicas share its batches."""
    answers = cluster.call(
        Call.MEASURE_INPUT, dataset, _INPUT_S, False, replicas,
        on_data=shown_on(status), report=status.update,
    )  # fmt: skip
    row = answers[min(answers)]
    if "refused" in row:
        raise DataError(row["refused"])
    return InputPlan(dataset, row["reading"], row["samples_per_s"])


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
    needs = [
        (
            str(stage.number),
            *(size(getattr(stage.memory, part)) for part in PARTS),
            f"{stage.held} of {plan.micro_batches}",
            size(stage.memory.total),
        )
        for stage in plan.stages
    ]
    return bundle(
        Bold(f"{headline(plan)}\n{limit(plan)}"),
        Table(head, rows, left={"from, to"}),
        Table(
            ("stage", *PARTS, "held at most", "in all"), needs,
            folded="memory of the stages, by what it is for",
        ),
        memory(plan),
        *filter(None, [read(plan)]),
        *(layers_of(plan.layouts, "layer by layer, a micro-batch") if plan.layouts else ()),
    )  # fmt: skip


def comparison_bundle(plans: Sequence[PipelinePlan], refused: Mapping[str, str]) -> dict[str, str]:
    """Schedules beside each other.

    Args:
        plans: at least one.
        refused: schedules of which there is no plan, and why.
    """
    head = ("schedule", "stages", "median step", "samples/s", "speedup", "idle",
            "by formula", "memory")  # fmt: skip
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
    return bundle(Bold(comparison(plans)), table, *filter(None, [reasons, read(plans[0])]))


def _between(first: str, last: str, layers: int) -> str:
    if layers == 1:
        return _shortened(first, _SHORT)
    return f"{_shortened(first, _SHORT // 2)} … {_shortened(last, _SHORT // 2)}"


def _shortened(name: str, most: int) -> str:
    """The end of a long name says more than its beginning."""
    return name if len(name) <= most else f"…{name[-most + 1 :]}"
