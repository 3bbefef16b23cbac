"""Step traces of pipelines that never ran: simulated."""

import random

from tnt_notebook.plan.families import bubble_by_formula, make
from tnt_notebook.plan.simulate import Costs, simulate
from tnt_notebook.telemetry.step_trace import Box, StepTrace, of_boxes

FORWARD, INPUTS, WEIGHTS = 1e-3, 1e-3, 0.8e-3  # seconds of a micro-batch on a rank


def step_of_a_pipeline(
    schedule: str = "1f1b",
    ranks: int = 4,
    micro_batches: int = 8,
    *,
    message: float = 0.0,
    noise: float = 0.0,
    seed: int = 0,
    around: bool = False,
    replicas: int = 1,
    uneven: float = 0.0,
) -> StepTrace:
    """A step of all stages alike.

    Args:
        message: Seconds that a message takes.
        noise: Stages take up to so much longer, as a part of their time.
        seed: Of the noise.
        around: Whether there is also what is no action: data, messages, optimizer.
        replicas: Pipelines that share the data; all do the same, each later than the one before.
        uneven: Seconds by which a box may begin and end earlier.
    """
    plan = make(schedule, ranks, micro_batches)
    share = ranks / plan.stages
    chance = random.Random(seed)
    slower = [share * (1 + noise * chance.random()) for _ in range(plan.stages)]
    costs = Costs(
        [FORWARD * factor for factor in slower],
        [INPUTS * factor for factor in slower],
        [WEIGHTS * factor for factor in slower],
        {(stage, stage + 1): message for stage in range(plan.stages - 1)},
    )
    boxes = [
        Box(rank, action.kind, action.stage, action.micro, begin, end)
        for rank, action, begin, end in simulate(plan, costs).spans
    ]
    if around:
        boxes += _around(boxes, plan.rank_of, message)
    late = 2e-4 / replicas
    every = [
        box._replace(
            rank=box.rank + i * ranks,
            begin=box.begin + i * late - uneven * chance.random(),
            end=box.end + i * late - uneven * chance.random(),
        )
        for i in range(replicas)
        for box in boxes
    ]
    return of_boxes(
        every, time=1000.0 + seed, clock_error=0.0, pipeline=ranks, ranks=ranks * replicas,
        schedule=schedule, micro_batches=micro_batches,
        formula=bubble_by_formula(plan, FORWARD, INPUTS, WEIGHTS),
    )  # fmt: skip


def _around(actions: list[Box], rank_of: tuple[int, ...], message: float) -> list[Box]:
    """Sends after forwards, waits before the first action of a rank, the optimizer at the end."""
    boxes = []
    for box in actions:
        to = box.stage + (1 if box.kind == "F" else -1)
        if message and box.kind in "FBI" and 0 <= to < len(rank_of) and rank_of[to] != box.rank:
            boxes.append(Box(box.rank, "S", rank_of[to], box.number, box.end, box.end + message))
    start = min(box.begin for box in actions)
    for rank in set(rank_of):
        own = [box for box in actions if box.rank == rank]
        first, last = min(box.begin for box in own), max(box.end for box in own)
        if first > start:
            boxes.append(Box(rank, "R", rank - 1, 0, start, first))
        boxes.append(Box(rank, "D", 0, 0, start - 3e-4, start))
        boxes.append(Box(rank, "O", 0, 0, last, last + 6e-4))
    return boxes
