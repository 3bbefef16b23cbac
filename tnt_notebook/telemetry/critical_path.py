"""What a step took so long for: the chain of boxes of which each waited for the one before.

::

    rank 0   [F0]F1 F2 ..............[B2]      the path hops to another rank where what that
    rank 1      [F0]F1 F2..........[B2]        one has made was the last thing that was missing
    rank 2          [F0 B0 F1 B1 F2 B2]

A shorter box on it makes the step shorter, until another chain is the longest; one beside it does
not. (Yang and Miller, Critical path analysis for the execution of parallel and distributed
programs, ICDCS 1988, section 3: followed back from the end of the last activity.)
"""

from __future__ import annotations

from collections.abc import Iterable
from operator import attrgetter

from tnt_notebook.telemetry.step_trace import ACTIONS, BESIDE, Box, StepTrace, by_rank, replicas

#: A part of the step: what is not further apart follows at once.
_AT_ONCE = 2e-3

_end = attrgetter("end")


def critical_path(trace: StepTrace) -> list[tuple[int, int]]:
    """The boxes of the path in order of time, each as the number of its row and its own there."""
    of_ranks = by_rank(trace)
    beside_each_other = {rank: ranks for ranks in replicas(trace) for rank in ranks}
    work = {
        rank: [box for box in own if box.kind not in BESIDE + "R"] for rank, own in of_ranks.items()
    }
    path: list[Box] = []
    box = max((box for own in work.values() for box in own), key=_end, default=None)
    while box is not None:
        path.append(box)
        before = _last((b for b in work[box.rank] if b is not box), box.begin, trace["seconds"])
        waited = box.begin - (before.end if before is not None else 0.0)
        if waited > _AT_ONCE * trace["seconds"]:
            ranks = beside_each_other.get(box.rank, tuple(work))
            missing = _message(box, (b for rank in ranks for b in work[rank]))
            before = missing or _gradient(box, of_ranks, work) or before
        box = before if before is not None and before.begin < box.begin else None
    rows = {rank: row for row, rank in enumerate(of_ranks)}
    return [(rows[box.rank], of_ranks[box.rank].index(box)) for box in reversed(path)]


def _last(some: Iterable[Box], time: float, whole: float) -> Box | None:
    """The one of these that has ended last by a time."""
    ended = (box for box in some if box.end <= time + _AT_ONCE * whole)
    return max(ended, key=_end, default=None)


def _message(box: Box, actions: Iterable[Box]) -> Box | None:
    """What an action needs of the stage before, or of a backward after it."""
    if box.kind not in ACTIONS or box.kind == "W":
        return None
    kinds, stage = ("F", box.stage - 1) if box.kind == "F" else ("BI", box.stage + 1)
    needed = (b for b in actions if b.kind in kinds and b.stage == stage and b.number == box.number)
    return max((b for b in needed if b.end <= box.begin), key=_end, default=None)


def _gradient(box: Box, of_ranks: dict[int, list[Box]], work: dict[int, list[Box]]) -> Box | None:
    """What an optimizer needs of all ranks: the work of the one whose gradients came last."""
    if box.kind != "O":
        return None
    exchanges = [x for x in of_ranks[box.rank] if x.kind == "X" and x.begin < box.begin]
    if not exchanges:
        return None
    number = max(exchanges, key=_end).number
    alike = [x for own in of_ranks.values() for x in own if x.number == number]
    # An exchange begins for all with the last rank: who that was, those say who waited for it.
    waits = [x for x in alike if x.kind == "L" and x.stage in work]
    begun = max((x for x in alike if x.kind == "X"), key=attrgetter("begin"))
    last = max(waits, key=lambda wait: wait.end - wait.begin).stage if waits else begun.rank
    before = (b for b in work[last] if b.begin <= begun.begin and b.kind != "O")
    return max(before, key=_end, default=None)
