"""A measured step as actions; and as planned: the same work in the same order, free messages.

What is idle in the plan belongs to the schedule; what is idle in the measured step beyond that was
lost to messages, or to actions that took longer than they usually do.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from statistics import fmean
from typing import Any, cast

from tnt_notebook.errors import ScheduleError
from tnt_notebook.plan.schedule import Action, Kind, Schedule
from tnt_notebook.plan.simulate import Costs, Span, Timeline, simulate
from tnt_notebook.telemetry.step_trace import ACTIONS, Box, StepTrace, of_boxes, replicas
from tnt_notebook.telemetry.step_trace import boxes as boxes_of


def timeline_from(trace: StepTrace) -> Timeline | None:
    """A step of a pipeline's first replica; None without a pipeline, or where ranks are missing."""
    ranks = next(iter(replicas(trace)), ())
    actions = [box for box in boxes_of(trace) if box.rank in ranks and box.kind in ACTIONS]
    if not actions:
        return None
    begin = min(box.begin for box in actions)
    spans = tuple(
        Span(ranks.index(box.rank), _action_of(box), box.begin - begin, box.end - begin)
        for box in actions
    )
    return Timeline(
        trace.get("schedule", ""),
        trace["pipeline"],
        trace.get("micro_batches", 1),
        spans,
        measured=True,
    )


def planned(trace: StepTrace) -> StepTrace | None:
    """The step of a pipeline as it would be if messages took no time, and every action the mean
    time that its kind takes on its stage.

    It begins with the first measured action. ``None`` without a pipeline, and where ranks of it
    have no row.
    """
    actions = [box for box in boxes_of(trace) if box.kind in ACTIONS]
    try:
        boxes = [box for ranks in replicas(trace) for box in _planned_of(actions, ranks)]
    except ScheduleError:  # a part of a step, or stages that are no chain
        return None
    if not boxes:
        return None
    rest: dict[str, Any] = {k: v for k, v in trace.items() if k not in ("seconds", "tick", "rows")}
    plan = of_boxes(boxes, **rest)
    shift = round(min(box.begin for box in actions) / plan["tick"])
    for row in plan["rows"]:
        row["begins"] = [begin + shift for begin in row["begins"]]
    return plan


def _planned_of(actions: Sequence[Box], ranks: Sequence[int]) -> list[Box]:
    """The planned actions of one replica, beginning at 0 s."""
    own = [box for box in actions if box.rank in ranks]
    rank_of = {box.stage: ranks.index(box.rank) for box in own}
    stages = len(rank_of)
    if set(rank_of) != set(range(stages)):
        raise ScheduleError("Stages are missing.")
    measured = {_action_of(box) for box in own}
    in_order: list[list[Action]] = [[] for _ in ranks]
    for box in sorted(own, key=lambda box: box.begin):
        action = _action_of(box)
        gradient = action._replace(kind="I")
        if action.kind == "W" and gradient not in measured:
            in_order[ranks.index(box.rank)].append(gradient)  # nobody needs that of the first stage
        in_order[ranks.index(box.rank)].append(action)
    schedule = Schedule(
        "as measured",
        tuple(rank_of[stage] for stage in range(stages)),
        1 + max(box.number for box in own),
        tuple(map(tuple, in_order)),
    )
    return [
        Box(ranks[rank], action.kind, action.stage, action.micro, begin, end)
        for rank, action, begin, end in simulate(schedule, _mean_costs(own, stages)).spans
        if action in measured
    ]


def _mean_costs(actions: Sequence[Box], stages: int) -> Costs:
    """What actions take on each stage, in seconds; a whole backward counts as input gradient."""
    times: dict[tuple[str, int], list[float]] = defaultdict(list)
    for box in actions:
        times[box.kind, box.stage].append(box.end - box.begin)

    def mean(kinds: str, stage: int) -> float:
        return next((fmean(times[kind, stage]) for kind in kinds if times[kind, stage]), 0.0)

    every = range(stages)
    return Costs(
        [mean("F", stage) for stage in every],
        [mean("IB", stage) for stage in every],
        [mean("W", stage) for stage in every],
    )


def _action_of(box: Box) -> Action:
    """What a box of one of the kinds `ACTIONS` shows."""
    return Action(cast(Kind, box.kind), box.stage, box.number)
