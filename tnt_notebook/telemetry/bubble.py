"""Why ranks of a pipeline are idle: from the boxes of a step.

::

    rank 0   FFFF.....BBBB      fill       until its first action
    rank 1   ..FFFF.BBBB..      drain      after its last action
              ^    ^   ^^       wait       between actions, until a message has come
            fill wait drain     imbalance  the part of waiting that it has less work than others
                                other      between actions, and no message is missing
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from tnt_notebook.telemetry.events import union
from tnt_notebook.telemetry.step_trace import ACTIONS, Box, StepTrace, boxes, by_rank


class Idle(NamedTuple):
    """Seconds of a step in which a rank has nothing to do."""

    fill: float
    drain: float
    wait: float
    imbalance: float
    other: float


def actions_s(trace: StepTrace) -> float:
    """Seconds from the first action of a step to the end of the last one; 0 without actions."""
    actions = [box for box in boxes(trace) if box.kind in ACTIONS]
    if not actions:
        return 0.0
    return max(box.end for box in actions) - min(box.begin for box in actions)


def idle_of(trace: StepTrace) -> dict[int, Idle]:
    """Why each rank of a pipeline is idle, from the first action of a step to the last one.

    The sum for a rank is its bubble in seconds. Empty without a pipeline.
    """
    own = by_rank(trace)
    actions = {rank: [box for box in some if box.kind in ACTIONS] for rank, some in own.items()}
    actions = {rank: some for rank, some in actions.items() if some}
    work = {rank: _sum(some) for rank, some in actions.items()}
    begin = min((some[0].begin for some in actions.values()), default=0.0)
    end = begin + actions_s(trace)
    idle = {}
    for rank, some in actions.items():
        first, last = some[0].begin, max(box.end for box in some)
        waited = _sum([box for box in own[rank] if box.kind == "R" and box.begin > first])
        imbalance = min(waited, max(work.values()) - work[rank])
        other = (last - first) - work[rank] - waited
        idle[rank] = Idle(first - begin, end - last, waited - imbalance, imbalance, max(0.0, other))
    return idle


def _sum(some: Sequence[Box]) -> float:
    return sum(box.end - box.begin for box in some)


def messages_of(trace: StepTrace) -> dict[tuple[int, int], float]:
    """How long ranks wait for messages that are under way already, by (from, to), in seconds.

    Waiting for a message that was not sent yet is not the link's fault.
    """
    all_boxes = boxes(trace)
    sent: dict[tuple[int, int], list[Box]] = defaultdict(list)
    for box in all_boxes:
        if box.kind == "S":
            sent[box.rank, box.stage].append(box)
    exposed: dict[tuple[int, int], float] = defaultdict(float)
    for wait in all_boxes:
        if wait.kind != "R":
            continue
        link = (wait.stage, wait.rank)
        # The message that ended the wait is the last one that began before its end.
        begins = [send.begin for send in sent[link] if send.begin < wait.end]
        if begins:
            exposed[link] += wait.end - max(wait.begin, *begins)
    return dict(exposed)


def hidden(trace: StepTrace) -> dict[int, float]:
    """The part of each rank's exchanges that goes on while it works, 0 to 1; of ranks that
    exchange."""
    shares = {}
    for rank, own in by_rank(trace).items():
        exchanges = [box for box in own if box.kind == "X"]
        work = [box for box in own if box.kind in ACTIONS + "C"]
        if whole := covered_s(exchanges):
            both = whole + covered_s(work) - covered_s(exchanges + work)
            shares[rank] = both / whole
    return shares


def covered_s(some: Sequence[Box]) -> float:
    """Seconds in which there is at least one of the boxes."""
    return union(np.array([box.begin for box in some]), np.array([box.end for box in some]))
