"""Cuts a list of calls into consecutive stages: by hand, or so that the slowest is fastest.

    calls    0 1 2 3 4 | 5 6 7 | 8 9          a stage is a run of calls
    values   2 --------> 6                    a value goes from the stage that makes it straight to
             2 ------------------> 9          every stage that takes it, also over several stages

Only numbers of calls and values occur here, so that the notebook can plan without Keras.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

from tnt_notebook.errors import ModelError


@dataclass(frozen=True)
class Wiring:
    """Who makes and takes what.

    Attributes:
        calls: of each call, the values that it takes and gives.
        inputs: values that the model is given; every stage can read them.
        outputs: values that the model returns; the last stage takes them all, for the loss.
    """

    calls: tuple[tuple[tuple[int, ...], tuple[int, ...]], ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]


class Edge(NamedTuple):
    """A value that one stage makes and a later one takes."""

    value: int
    maker: int
    user: int


@dataclass(frozen=True)
class Stage:
    """Calls ``begin`` to ``end`` (without it).

    Attributes:
        inputs: values given to the model that the stage reads.
        takes: values of earlier stages.
        gives: values that later stages take.
    """

    begin: int
    end: int
    inputs: tuple[int, ...]
    takes: tuple[int, ...]
    gives: tuple[int, ...]


@dataclass(frozen=True)
class Partition:
    stages: tuple[Stage, ...]
    edges: tuple[Edge, ...]

    def pairs(self) -> list[tuple[int, int]]:
        """Stages that talk to each other: (maker, user)."""
        return sorted({(edge.maker, edge.user) for edge in self.edges})


def partition(wiring: Wiring, begins: Sequence[int]) -> Partition:
    """The stages that begin with the given calls; the first begins with call 0.

    Raises:
        ModelError: a stage would be empty.
    """
    bounds = [0, *begins, len(wiring.calls)]
    if any(a >= b for a, b in pairwise(bounds)):
        raise ModelError(
            f"Stages cannot begin with calls {list(begins)}: each must have at least one of the "
            f"{len(wiring.calls)} calls of the model."
        )
    stage_of = {v: s for s, (a, b) in enumerate(pairwise(bounds)) for v in _made(wiring, a, b)}
    taken = [_taken(wiring, a, b) for a, b in pairwise(bounds)]
    edges = [
        Edge(value, stage_of[value], user)
        for user, values in enumerate(taken)
        for value in values
        if value in stage_of
    ]
    stages = [
        Stage(
            a,
            b,
            tuple(v for v in taken[s] if v not in stage_of),
            tuple(v for v in taken[s] if v in stage_of),
            tuple(sorted({edge.value for edge in edges if edge.maker == s})),
        )
        for s, (a, b) in enumerate(pairwise(bounds))
    ]
    return Partition(tuple(stages), tuple(edges))


def begins_of(names: Sequence[str], cut_at: Sequence[str]) -> list[int]:
    """The calls with which stages begin, from the names of layers.

    Args:
        names: of the layer of each call.
        cut_at: of the layers that begin a stage; at their first call.

    Raises:
        ModelError: there is no such layer, or it begins the model.
    """
    begins = []
    for name in cut_at:
        if name not in names:
            close = difflib.get_close_matches(name, dict.fromkeys(names), 3)
            hint = f" Is it {' or '.join(map(repr, close))}?" if close else ""
            raise ModelError(f"cut_at names {name!r}, and the model has no such layer.{hint}")
        begins.append(list(names).index(name))
    if 0 in begins:
        raise ModelError(
            f"cut_at names {names[0]!r}, with which the model begins: nothing is before it."
        )
    return sorted(set(begins))


@dataclass(frozen=True)
class Weighing:
    """What a cut is judged by.

    Attributes:
        seconds: forward and backward of a micro-batch, of each call.
        transfer: seconds that it takes to bring a value to another rank and its gradient back.
        held_bytes: of each call, what a micro-batch that is under way keeps.
        fixed_bytes: of each call, weights, their gradients, and state of the optimizer.
    """

    seconds: Sequence[float]
    transfer: Mapping[int, float]
    held_bytes: Sequence[int]
    fixed_bytes: Sequence[int]


def time_of(wiring: Wiring, weighing: Weighing, begin: int, end: int) -> float:
    """What a stage of these calls takes for a micro-batch, with what it takes from others."""
    made_before = set(_made(wiring, 0, begin))
    brought = sum(
        weighing.transfer.get(v, 0.0) for v in _taken(wiring, begin, end) if v in made_before
    )
    return sum(weighing.seconds[begin:end]) + brought


def bytes_of(weighing: Weighing, begin: int, end: int, held: int) -> int:
    """What a stage of these calls needs in memory with so many micro-batches under way."""
    return sum(weighing.fixed_bytes[begin:end]) + held * sum(weighing.held_bytes[begin:end])


def best_begins(
    wiring: Wiring,
    weighing: Weighing,
    stages: int,
    held: Sequence[int] | None = None,
    limit_bytes: float = float("inf"),
) -> list[int]:
    """Where to cut so that the slowest stage is as fast as can be: by dynamic programming.

    Args:
        held: micro-batches that each stage has under way at most.
        limit_bytes: the memory that a stage may take.

    Raises:
        ModelError: there are fewer calls than stages, or no cut fits into memory.
    """
    n = len(wiring.calls)
    if n < stages:
        raise ModelError(
            f"The model has {n} layer calls, so it cannot be cut into {stages} stages."
        )
    held = held or [1] * stages
    never = float("inf")
    # slowest[b]: of the best cut of calls 0 to b into the stages so far; come_from: its last begin.
    slowest = [0.0] + [never] * n
    come_from: list[list[int]] = []
    for stage in range(stages):
        now, before = [never] * (n + 1), [0] * (n + 1)
        for begin in range(stage, n):
            if slowest[begin] == never:
                continue
            for end, seconds in _times_from(wiring, weighing, begin):
                if bytes_of(weighing, begin, end, held[stage]) > limit_bytes:
                    break  # a longer one is larger
                value = max(slowest[begin], seconds)
                if value < now[end]:
                    now[end], before[end] = value, begin
        slowest = now
        come_from.append(before)
    if slowest[n] == never:
        raise ModelError(
            f"No cut into {stages} stages fits into {limit_bytes / 2**20:.0f} MiB a rank. More "
            "stages, smaller micro-batches, a schedule that holds fewer of them, or recomputation "
            "of activations need less."
        )
    begins, end = [], n
    for before in reversed(come_from):
        end = before[end]
        begins.append(end)
    return begins[-2::-1]


def _times_from(wiring: Wiring, weighing: Weighing, begin: int) -> list[tuple[int, float]]:
    """(end, :func:`time_of`) for all ends: with one pass over the calls."""
    made_before = set(_made(wiring, 0, begin))
    brought: set[int] = set()
    seconds, times = 0.0, []
    for call in range(begin, len(wiring.calls)):
        seconds += weighing.seconds[call]
        brought.update(v for v in wiring.calls[call][0] if v in made_before)
        end = call + 1
        last = set(wiring.outputs) & made_before if end == len(wiring.calls) else set()
        times.append((end, seconds + sum(weighing.transfer.get(v, 0.0) for v in brought | last)))
    return times


def _made(wiring: Wiring, begin: int, end: int) -> list[int]:
    return [value for _, gives in wiring.calls[begin:end] for value in gives]


def _taken(wiring: Wiring, begin: int, end: int) -> list[int]:
    """Values that these calls take and do not make, in order; the last stage also all outputs."""
    made = set(_made(wiring, begin, end))
    taken = [value for takes, _ in wiring.calls[begin:end] for value in takes]
    if end == len(wiring.calls):
        taken += wiring.outputs
    return list(dict.fromkeys(value for value in taken if value not in made))
