"""Collectives as data: what each rank does, step by step, and how to add an algorithm.

An algorithm is a function from a :class:`Task` to the :class:`Schedule` of that rank::

    from tnt_notebook.comm import schedules as s

    def star(task):
        "Rank 0 collects, adds and sends back."
        n, whole = task.count, s.Place("data", 0)
        steps = [s.copy(0, n, to=whole, from_=s.Place("input", 0))]
        if task.rank == 0:
            for r in range(1, task.size):
                there = s.Place("scratch", (r - 1) * n)
                steps.append(s.receive(1, n, r, to=there))
            for r in range(1, task.size):
                there = s.Place("scratch", (r - 1) * n)
                steps.append(s.reduce(2, n, to=whole, from_=whole, with_=there))
            steps += [s.send(2, n, r, from_=whole) for r in range(1, task.size)]
        else:
            steps += [s.send(1, n, 0, from_=whole), s.receive(2, n, 0, to=whole)]
        steps.append(s.copy(3, n, to=s.Place("output", 0), from_=whole))
        return s.Schedule(steps, data_count=n, scratch_count=(task.size - 1) * n)

    s.check(star, "allreduce", size=7, count=100)         # proves it, or says what is wrong
    comm.world().allreduce(array, algorithm=star)         # runs it

The steps of a round start in the order of the list; copies and reduces are done before the next
step starts, messages go on beside them, and the round ends when all its messages have completed.
Ranks of one node may copy and reduce from and to each other's data memory (``Place("data", begin,
rank)``), as far as messages order the accesses; a message of no elements does that and nothing
else.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from tnt_notebook.comm import _kernels
from tnt_notebook.comm.numbers import COLLECTIVES

MEMORIES = ("input", "output", "data", "scratch")


@dataclass(frozen=True)
class Place:
    """Where a range of elements begins.

    Attributes:
        memory: ``"input"`` (what the caller gave), ``"output"`` (where the result goes), ``"data"``
            (what the ranks of a node reach) or ``"scratch"``.
        begin: the first element.
        rank: whose memory; -1 is one's own.
    """

    memory: str
    begin: int
    rank: int = -1


_NOWHERE = Place("data", 0)


@dataclass(frozen=True)
class Step:
    """One step of one rank: see :func:`send`, :func:`receive`, :func:`copy`, :func:`reduce`."""

    round: int
    action: str
    count: int
    peer: int = -1
    to: Place = _NOWHERE
    from_: Place = _NOWHERE
    with_: Place = _NOWHERE
    span: int = 1


@dataclass(frozen=True)
class Schedule:
    """What one rank does.

    Attributes:
        steps: rounds ascending.
        data_count, scratch_count: elements of the two memories that the steps touch.
        shared: whether some rank reaches into the data memory of another. No rank may then finish
            before all have begun.
        alternates: whether peers may still read, when this rank has finished, what the same
            schedule would write first; if it is repeated, it then gets another data memory.
    """

    steps: Sequence[Step]
    data_count: int = 0
    scratch_count: int = 0
    shared: bool = False
    alternates: bool = False


#: From rank, to rank, elements.
Flow = tuple[int, int, int]


@dataclass(frozen=True)
class Task:
    """What a schedule is made for.

    Attributes:
        collective: one of ``tnt_notebook.comm.numbers.COLLECTIVES``.
        rank, size: place in the group, and its size.
        count: elements (of one block, for an alltoall).
        element_bytes: bytes of an element.
        offsets: where the blocks of an allgather or reduce-scatter begin, and where the last ends.
        root: of a broadcast or reduce.
        node: number of each rank's node; ranks of one node share memory.
        in_place: the data memory holds the input and takes the output.
        flows: of an alltoallv, those of all ranks: from whom, to whom, and how many elements. A
            rank's input has what it gives, and its output what it gets, flow after flow; ``count``
            is their sum.
    """

    collective: str
    rank: int
    size: int
    count: int
    element_bytes: int = 4
    offsets: tuple[int, ...] = ()
    root: int = 0
    node: tuple[int, ...] = field(default=())
    in_place: bool = False
    flows: tuple[Flow, ...] = ()


Maker = Callable[[Task], Schedule]


def send(round: int, count: int, peer: int, from_: Place, span: int = 1) -> Step:
    """Sends ``count`` elements to rank ``peer``; done when round ``round + span`` starts."""
    return Step(round, "send", count, peer=peer, from_=from_, span=span)


def receive(round: int, count: int, peer: int, to: Place, span: int = 1) -> Step:
    """Receives ``count`` elements from rank ``peer``; there when ``round + span`` starts."""
    return Step(round, "receive", count, peer=peer, to=to, span=span)


def copy(round: int, count: int, to: Place, from_: Place) -> Step:
    """Copies ``count`` elements."""
    return Step(round, "copy", count, to=to, from_=from_)


def reduce(round: int, count: int, to: Place, from_: Place, with_: Place) -> Step:
    """Reduces ``count`` elements of two places into a third, which may be one of them."""
    return Step(round, "reduce", count, to=to, from_=from_, with_=with_)


def names(collective: str) -> list[str]:
    """The algorithms of the backend for a collective."""
    if collective not in COLLECTIVES:
        raise ValueError(f"collective {collective!r} is not one of {', '.join(COLLECTIVES)}")
    number = COLLECTIVES.index(collective)
    return [name for of, name in _kernels.algorithms() if of == number]


def check(
    algorithm: str | Maker,
    collective: str,
    size: int,
    count: int,
    *,
    node: Sequence[int] = (),
    root: int = 0,
    offsets: Sequence[int] = (),
    in_place: bool = False,
    element_bytes: int = 4,
    flows: Sequence[Flow] = (),
) -> None:
    """Proves an algorithm for one size by symbolic execution, with all ranks and no hardware.

    Every contribution is counted once and in the same order on all ranks, no message is unmatched,
    nothing deadlocks, and no rank touches memory that another uses at the time; also when the
    operation is repeated at once.

    Raises:
        ValueError: what is wrong, on which rank, in which step.
    """
    if collective in ("allgather", "reduce_scatter") and not offsets:
        offsets = [count * r // size for r in range(size + 1)]
    task = Task(
        collective, 0, size, count, element_bytes, tuple(offsets), root, tuple(node), in_place,
        tuple(flows),
    )  # fmt: skip
    if isinstance(algorithm, str):
        problem = _kernels.check(algorithm, task)
    else:
        problem = _kernels.check_function(lambda r: algorithm(replace(task, rank=r)), task)
    if problem:
        raise ValueError(problem)


@functools.lru_cache(maxsize=256)
def made_by(
    maker: Maker, task: Task, input_count: int, output_count: int
) -> tuple[_kernels.Schedule, int]:
    """What a function makes for a rank, and a number by which ranks notice that they have different
    functions; kept, so that it is called once.

    Raises:
        ValueError: a step goes beyond the memory or the ranks that there are.
    """
    schedule = maker(task)
    elements = {
        "input": input_count,
        "output": output_count,
        "data": schedule.data_count,
        "scratch": schedule.scratch_count,
    }
    for number, step in enumerate(schedule.steps):
        fault = _fault(step, task, elements)
        if fault:
            raise ValueError(
                f"{getattr(maker, '__name__', maker)} of {task.size} ranks: rank {task.rank}, "
                f"step {number} ({step.action}) {fault}"
            )
    # Of what it makes for rank 0: every rank can tell, and the same function says the same on all.
    of_rank_0 = repr(maker(replace(task, rank=0))).encode()
    fingerprint = hashlib.blake2b(of_rank_0, digest_size=6).digest()
    return _kernels.schedule(schedule), int.from_bytes(fingerprint)


#: In which memories the places of an action may be.
_WIRE = ("data", "scratch")
_PLACES: dict[str, dict[str, tuple[str, ...]]] = {
    "send": {"from_": _WIRE},
    "receive": {"to": _WIRE},
    "copy": {"to": ("output", *_WIRE), "from_": ("input", *_WIRE)},
    "reduce": {"to": ("output", *_WIRE), "from_": MEMORIES, "with_": MEMORIES},
}


def _fault(step: Step, task: Task, elements: dict[str, int]) -> str:
    """Why a step cannot be carried out, or nothing. Whether it is right, :func:`check` proves."""
    if step.action not in _PLACES:
        return f"is not one of {', '.join(_PLACES)}"
    is_message = step.action in ("send", "receive")
    if is_message and (not 0 <= step.peer < task.size or step.peer == task.rank):
        return f"has no peer {step.peer}"
    for name, memories in _PLACES[step.action].items():
        place: Place = getattr(step, name)
        if place.memory not in memories:
            return f"cannot have its place {name!r} in {place.memory!r}"
        begin, end = place.begin, place.begin + step.count
        if not 0 <= begin <= end:
            return f"has a place [{begin}, {end})"
        if place.rank == -1:
            if end > elements[place.memory]:
                return f"touches {place.memory}[{begin}:{end}] of {elements[place.memory]} elements"
        elif (
            is_message
            or place.memory != "data"
            or not 0 <= place.rank < task.size
            or place.rank == task.rank
            or task.node[place.rank] != task.node[task.rank]
        ):
            return f"cannot reach {place.memory} of rank {place.rank}"
    return ""
