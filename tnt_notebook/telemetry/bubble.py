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

from tnt_notebook.telemetry.step_trace import ACTIONS, Box, StepTrace, boxes


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
    all_boxes = boxes(trace)
    actions: dict[int, list[Box]] = defaultdict(list)
    waits: dict[int, float] = defaultdict(float)
    for box in all_boxes:
        if box.kind in ACTIONS:
            actions[box.rank].append(box)
    if not actions:
        return {}
    begin = min(own[0].begin for own in actions.values())
    end = max(max(box.end for box in own) for own in actions.values())
    for box in all_boxes:
        if box.kind == "R" and box.rank in actions and box.begin > actions[box.rank][0].begin:
            waits[box.rank] += box.end - box.begin
    work = {rank: sum(box.end - box.begin for box in own) for rank, own in actions.items()}
    most = max(work.values())
    idle = {}
    for rank, own in actions.items():
        fill, drain = own[0].begin - begin, end - max(box.end for box in own)
        imbalance = min(waits[rank], most - work[rank])
        other = (end - begin) - work[rank] - fill - drain - waits[rank]
        idle[rank] = Idle(fill, drain, waits[rank] - imbalance, imbalance, max(0.0, other))
    return idle


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
    for row in trace["rows"]:
        one: StepTrace = {**trace, "rows": [row]}
        exchanges = [box for box in boxes(one) if box.kind == "X"]
        work = _joined([box for box in boxes(one) if box.kind in ACTIONS + "C"])
        whole = covered_s(exchanges)
        if not whole:
            continue
        covered = sum(
            max(0.0, min(a_end, b_end) - max(a, b))
            for a, a_end in _joined(exchanges)
            for b, b_end in work
        )
        shares[row["rank"]] = covered / whole
    return shares


def covered_s(some: Sequence[Box]) -> float:
    """Seconds in which there is at least one of the boxes."""
    return sum(end - begin for begin, end in _joined(some))


def _joined(some: Sequence[Box]) -> list[tuple[float, float]]:
    """The times that lie in at least one of the boxes."""
    joined: list[tuple[float, float]] = []
    for box in sorted(some, key=lambda box: box.begin):
        if joined and box.begin <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(joined[-1][1], box.end))
        else:
            joined.append((box.begin, box.end))
    return joined
