"""Where a model is cut: where a person says so, at its SplitLayers, or where it is fastest."""

from __future__ import annotations

from collections.abc import Callable

from tnt_notebook.errors import ModelError
from tnt_notebook.keras.layers import SplitLayer
from tnt_notebook.parallel.pipeline.graph import Graph, wiring_of
from tnt_notebook.plan.options import Pipeline
from tnt_notebook.plan.partition import begins_of
from tnt_notebook.plan.prediction import rank_bytes
from tnt_notebook.plan.profile import Profile
from tnt_notebook.plan.schedule import Schedule
from tnt_notebook.plan.search import LESS_MEMORY, best_begins
from tnt_notebook.sizes import size


def begins_said(graph: Graph, pipeline: Pipeline, schedule: Schedule) -> list[int] | None:
    """The calls with which stages begin by ``cut_at`` or SplitLayers; None where nobody says.

    Raises:
        ModelError: a name is not in the model, or the parts are not as many as the stages.
    """
    if pipeline.cut_at != "auto":
        begins = begins_of([call.name for call in graph.calls], pipeline.cut_at)
        who = "cut_at makes"
    else:
        begins = _splits(graph)
        if not begins:
            return None
        who = "SplitLayers make"
    parts = len(begins) + 1
    if parts != schedule.stages:
        raise ModelError(
            f"{who} {parts} parts of the model, and the schedule {schedule.name} on "
            f"{schedule.ranks} ranks has {schedule.stages}."
        )
    return begins


def best_cut(
    graph: Graph, pipeline: Pipeline, schedule: Schedule, profiled: Callable[[], Profile]
) -> list[int]:
    """The calls with which stages begin, within the limit of memory; measures if it must.

    Args:
        profiled: measures the model; see :func:`tnt_notebook.plan.profile.recomputing`.

    Raises:
        ModelError: as :func:`begins_said`; or no cut, or not the one asked for, fits into memory.
    """
    said, wiring = begins_said(graph, pipeline, schedule), wiring_of(graph)
    limit = pipeline.limit_bytes
    if said is None:
        per_rank = max(len(schedule.stages_of(rank)) for rank in range(schedule.ranks))
        held = schedule.held_by_stage()
        return best_begins(wiring, profiled(), schedule.stages, held, limit, per_rank)
    if limit < float("inf"):
        needs = rank_bytes(wiring, profiled(), schedule, said)
        if max(needs) > limit:
            raise ModelError(
                f"With this cut rank {needs.index(max(needs))} needs {size(max(needs))}, which is "
                f"more than {size(limit)}. Without cut_at and SplitLayers a better cut is looked "
                f"for. {LESS_MEMORY}"
            )
    return said


def _splits(graph: Graph) -> list[int]:
    """The calls of SplitLayers; of several side by side the first."""
    marked = [isinstance(call.operation, SplitLayer) for call in graph.calls]
    if marked and marked[0]:
        raise ModelError(
            f"The model begins with SplitLayer {graph.calls[0].name!r}: nothing is before it."
        )
    return [i for i, here in enumerate(marked) if here and not marked[i - 1]]
