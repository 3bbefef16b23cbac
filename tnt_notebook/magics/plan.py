"""``%tnt_plan``: has rank 0 measure a model, and shows what to expect of it in a pipeline."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tnt_notebook import errors
from tnt_notebook.dashboard.plan import fastest, figure_bundle
from tnt_notebook.dashboard.wording import plural
from tnt_notebook.errors import ModelError
from tnt_notebook.magics.plan_table import comparison_bundle, plan_bundle
from tnt_notebook.magics.progress import StatusLine, show
from tnt_notebook.plan.prediction import PipelinePlan, from_json
from tnt_notebook.protocol import Call, Published

if TYPE_CHECKING:
    from tnt_notebook.cluster import Cluster


def run(
    cluster: Cluster, name: str, pipeline: dict[str, Any], schedules: Sequence[str], batch_size: int
) -> list[PipelinePlan]:
    """Plans and shows.

    Args:
        name: of the model on the ranks.
        pipeline: keyword arguments of ``tnt_notebook.Pipeline``.
        schedules: one, or several to compare.

    Returns:
        The plan with each schedule that there can be.

    Raises:
        ModelError, ScheduleError: there is no plan; the message says why.
        RankError: it failed on rank 0.
    """
    status = StatusLine()
    begun = time.monotonic()

    def take(data: dict[str, Any]) -> None:
        if Published.PLANNED in data:
            progress = data[Published.PLANNED]
            status.update(f"measured {progress['done']} of {plural(progress['total'], 'layer')}")

    answer = cluster.call(
        Call.PLAN,
        name,
        pipeline,
        list(schedules),
        batch_size,
        ranks=[0],
        on_data=take,
        report=status.update,
    )[0]
    if "refused" in answer:
        raise getattr(errors, answer["kind"])(answer["refused"])
    if answer["measured"]:
        took = plural(max(1, round(time.monotonic() - begun)), "second")
        status.end(f"{plural(answer['measured'], 'layer')} measured in {took}")
    refused = {p["schedule"]: p["refused"] for p in answer["plans"] if "refused" in p}
    plans = [from_json(p) for p in answer["plans"] if "refused" not in p]
    if not plans:
        first, why = next(iter(refused.items()))
        raise ModelError(f"There is no schedule for it. {first}: {why}")
    compares = len(schedules) > 1
    table = comparison_bundle(plans, refused) if compares else plan_bundle(plans[0])
    show(table, figure_bundle(fastest(plans)))
    return plans
