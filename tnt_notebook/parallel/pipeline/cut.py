"""Where a model is cut: where a person says so, at its SplitLayers, or where it is fastest."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from tnt_notebook.comm import World
from tnt_notebook.errors import MemoryLimitError, MeshError, ModelError
from tnt_notebook.keras.layers import SplitLayer
from tnt_notebook.parallel.consistency import agreement
from tnt_notebook.parallel.layer_graph.graph import Graph, wiring_of
from tnt_notebook.plan.options import Pipeline
from tnt_notebook.plan.partition import Partition, begins_of
from tnt_notebook.plan.profile import Profile
from tnt_notebook.plan.schedule import Schedule
from tnt_notebook.plan.search import LESS_MEMORY, best_begins, loads_of
from tnt_notebook.plan.stages import rank_bytes
from tnt_notebook.sizes import size
from tnt_notebook.telemetry.step_trace import CutBy

#: It is worth a line that measuring took longer.
_WORTH_A_LINE_S = 2.0


def begins_said(graph: Graph, pipeline: Pipeline, schedule: Schedule) -> list[int] | None:
    """The calls with which stages begin by ``cut_at`` or SplitLayers; None where nobody says.
    Raises ModelError if a name is not in the model, or the parts are not as many as the stages."""
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


def described(graph: Graph, pipeline: Pipeline, cut: Partition) -> dict[str, Any]:
    """Who has said where the model is cut, and of each stage its first and its last layer: two
    entries of a :class:`~tnt_notebook.telemetry.step_trace.StepTrace`."""
    by: CutBy = "cut_at" if pipeline.cut_at != "auto" else "SplitLayer"
    if by == "SplitLayer" and not _splits(graph):
        by = "times"
    ends = []
    for stage in cut.stages:
        calls = graph.calls[stage.begin : stage.end]
        names = [call.name for call in calls if not isinstance(call.operation, SplitLayer)]
        ends.append([(names or [calls[0].name])[i] for i in (0, -1)])
    return {"cut_by": by, "layers": ends}


def best_cut(
    graph: Graph, pipeline: Pipeline, schedule: Schedule, profiled: Callable[[], Profile]
) -> list[int]:
    """The calls with which stages begin, within the limit of memory; measures if it must. Raises
    ModelError as :func:`begins_said`, or where no cut, or not the one asked for, fits into memory.
    """
    said, wiring = begins_said(graph, pipeline, schedule), wiring_of(graph)
    limit = pipeline.limit_bytes
    if said is None:
        per_rank = max(len(schedule.stages_of(rank)) for rank in range(schedule.ranks))
        held = schedule.held_by_stage()
        return best_begins(loads_of(wiring, profiled()), schedule.stages, held, limit, per_rank)
    if limit < float("inf"):
        needs = rank_bytes(wiring, profiled(), schedule, said)
        if max(needs) > limit:
            raise MemoryLimitError(
                f"With this cut rank {needs.index(max(needs))} needs {size(max(needs))}, which is "
                f"more than {size(limit)}. Without cut_at and SplitLayers a better cut is looked "
                f"for. {LESS_MEMORY}",
                max(needs),
            )
    return said


def agreed_begins(
    over: World,
    graph: Graph,
    pipeline: Pipeline,
    schedule: Schedule,
    profiled: Callable[[], Profile],
) -> list[int]:
    """Where rank 0, which measures, would cut: the ranks must not differ. Collective."""
    found: dict[str, Any] = {}
    if over.rank == 0:
        try:
            measure = functools.partial(_told_if_long, profiled)
            found = {"begins": best_cut(graph, pipeline, schedule, measure)}
        except (ModelError, MeshError) as error:
            found = {"refused": str(error), "kind": type(error).__name__}
        except (ValueError, tf.errors.OpError) as error:
            found = {
                "refused": f"The layers could not be timed, to cut the model; name those that "
                f"begin a stage in cut_at. The reason: {error}"
            }
    found = agreement.from_rank_0(over, found)
    if "refused" in found:
        raise (MeshError if found.get("kind") == "MeshError" else ModelError)(found["refused"])
    return list(found["begins"])


def _told_if_long(profiled: Callable[[], Profile]) -> Profile:
    begun = time.monotonic()
    profile = profiled()
    took = time.monotonic() - begun
    if took > _WORTH_A_LINE_S:
        print(f"measured the model's layers in {took:.0f} s, to cut it where that is best")
    return profile


def _splits(graph: Graph) -> list[int]:
    """The calls of SplitLayers; of several side by side the first."""
    marked = [isinstance(call.operation, SplitLayer) for call in graph.calls]
    if marked and marked[0]:
        raise ModelError(
            f"SplitLayer {graph.calls[0].name!r} is the first layer, so no stage can end before it."
        )
    return [i for i, here in enumerate(marked) if here and not marked[i - 1]]
