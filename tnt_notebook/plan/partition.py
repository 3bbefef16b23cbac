"""Cuts a list of calls into consecutive stages: by hand, or so that the slowest is fastest.

    calls    0 1 2 3 4 | 5 6 7 | 8 9          a stage is a run of calls
    values   2 --------> 6                    a value goes from the stage that makes it straight to
             2 ------------------> 9          every stage that takes it, also over several stages

Only numbers of calls and values occur here, so that the notebook can plan without Keras.
"""

from __future__ import annotations

import difflib
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice, pairwise
from typing import NamedTuple

from tnt_notebook.errors import ModelError
from tnt_notebook.sizes import size


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


class Variable(NamedTuple):
    """A weight: its numbers, their bytes, and whether it is trained."""

    elements: int
    bytes: int
    trained: bool = True


@dataclass(frozen=True)
class Weighing:
    """What a cut is judged by, and a step is predicted from; all times are of a micro-batch.

    Attributes:
        forward, inputs, weights: seconds of each call: its forward, the gradient of what it takes,
            and that of its weights.
        transfer: seconds that it takes to bring a value to another rank and its gradient back.
        value_bytes: of each value.
        kept: of each call, the values that its backward needs.
        inner_bytes: of each call, what its backward needs beside them.
        uses: of each call, the variables that it has, as numbers.
        variables: by number.
        slots: bytes of the optimizer's state for a byte of trained weights.
        recompute: whether activations are computed again rather than kept; see :func:`recomputing`.
    """

    forward: Sequence[float]
    inputs: Sequence[float]
    weights: Sequence[float]
    transfer: Mapping[int, float]
    value_bytes: Mapping[int, int]
    kept: Sequence[tuple[int, ...]]
    inner_bytes: Sequence[int]
    uses: Sequence[tuple[int, ...]]
    variables: Sequence[Variable]
    slots: float = 0.0
    recompute: bool = False

    @functools.cached_property
    def seconds(self) -> list[float]:
        """Forward and backward of each call."""
        return list(map(sum, zip(self.forward, self.inputs, self.weights, strict=True)))

    def state_bytes(self, variable: int) -> int:
        """A variable and what the optimizer keeps for it."""
        v = self.variables[variable]
        return v.bytes + round(self.slots * v.bytes * v.trained)


def recomputing(weighing: Weighing) -> Weighing:
    """The same for stages that keep only what they take, and begin backward with a forward."""
    pairs = zip(weighing.forward, weighing.inputs, strict=True)
    return replace(weighing, inputs=[f + i for f, i in pairs], recompute=True)


class Load(NamedTuple):
    """What consecutive calls ask of the rank that runs them.

    Attributes:
        seconds: for a micro-batch, with what it takes from other stages.
        state_bytes: of their weights, and of the optimizer's state for them.
        gradient_bytes: of their weights.
        held_bytes: what each micro-batch under way keeps: what its backward needs, or with
            recomputation what the stage takes.
        once_bytes: what the backward that is just being done needs beside that.
    """

    seconds: float
    state_bytes: int
    gradient_bytes: int
    held_bytes: int
    once_bytes: int

    def bytes(self, held: int) -> int:
        """With so many micro-batches under way."""
        weights = self.state_bytes + self.gradient_bytes
        return weights + held * self.held_bytes + self.once_bytes


def loads_from(wiring: Wiring, weighing: Weighing, begin: int) -> Iterator[Load]:
    """Of calls ``begin`` to each later end, the shortest first: with one pass over the calls."""
    made_before = set(_made(wiring, 0, begin))
    before = made_before | set(wiring.inputs)
    taken: set[int] = set()
    kept: set[int] = set()
    used: set[int] = set()
    seconds, brought = 0.0, 0.0
    state = gradients = activations = held = 0
    for call in range(begin, len(wiring.calls)):
        takes, keeps = set(wiring.calls[call][0]), set(weighing.kept[call])
        if call + 1 == len(wiring.calls):  # the loss takes all outputs
            takes |= set(wiring.outputs)
            keeps |= set(wiring.outputs)
        new = takes & before - taken
        taken |= new
        seconds += weighing.seconds[call]
        brought += sum(weighing.transfer.get(v, 0.0) for v in new & made_before)
        held += sum(weighing.value_bytes.get(v, 0) for v in new)
        fresh = keeps - kept
        kept |= fresh
        activations += weighing.inner_bytes[call]
        activations += sum(weighing.value_bytes.get(v, 0) for v in fresh)
        variables = set(weighing.uses[call]) - used
        used |= variables
        state += sum(map(weighing.state_bytes, variables))
        gradients += sum(
            weighing.variables[v].bytes for v in variables if weighing.variables[v].trained
        )
        kept_bytes, once = (held, activations) if weighing.recompute else (activations, 0)
        yield Load(seconds + brought, state, gradients, kept_bytes, once)


def load_of(wiring: Wiring, weighing: Weighing, begin: int, end: int) -> Load:
    """What calls ``begin`` to ``end`` (without it) ask for."""
    return next(islice(loads_from(wiring, weighing, begin), end - begin - 1, None))


def best_begins(
    wiring: Wiring,
    weighing: Weighing,
    stages: int,
    held: Sequence[int] | None = None,
    limit_bytes: float = float("inf"),
    stages_per_rank: int = 1,
) -> list[int]:
    """Where to cut so that the slowest stage is as fast as can be: by dynamic programming.

    Args:
        held: micro-batches that each stage has under way at most.
        limit_bytes: the memory that a rank may take; each of its stages has an equal part of it.

    Raises:
        ModelError: there are fewer calls than stages, or no cut fits into memory.
    """
    n = len(wiring.calls)
    if n < stages:
        raise ModelError(
            f"The model has {n} layer calls, so it cannot be cut into {stages} stages."
        )
    held = held or [1] * stages
    loads = [list(loads_from(wiring, weighing, begin)) for begin in range(n)]
    room = limit_bytes / stages_per_rank

    def load(begin: int, end: int) -> Load:
        return loads[begin][end - begin - 1]

    def seconds(stage: int, begin: int, end: int) -> float:
        return load(begin, end).seconds if memory(stage, begin, end) <= room else _NEVER

    def memory(stage: int, begin: int, end: int) -> float:
        return load(begin, end).bytes(held[stage])

    begins = _least(n, stages, seconds)
    if begins is None:
        smallest = _least(n, stages, memory) or []
        bounds = enumerate(pairwise([0, *smallest, n]))
        most = max(load(a, b).bytes(held[stage]) for stage, (a, b) in bounds)
        needs = stages_per_rank * most
        raise ModelError(
            f"No cut into {stages} stages fits into {size(limit_bytes)} a rank: the one that needs "
            f"least takes {size(needs)}. {LESS_MEMORY}"
        )
    return begins


#: What to do about memory.
LESS_MEMORY = (
    "More stages, smaller micro-batches, a schedule that holds fewer of them, or recomputation of "
    "activations need less."
)

_NEVER = float("inf")


def _least(n: int, stages: int, cost: Callable[[int, int, int], float]) -> list[int] | None:
    """Begins of the stages but the first, such that the largest ``cost(stage, begin, end)`` is as
    small as can be; None where it is infinite.
    """
    # least[b]: of the best cut of calls 0 to b into the stages so far; come_from: its last begin.
    least = [0.0] + [_NEVER] * n
    come_from: list[list[int]] = []
    for stage in range(stages):
        now, before = [_NEVER] * (n + 1), [0] * (n + 1)
        for begin in range(stage, n):
            if least[begin] == _NEVER:
                continue
            for end in range(begin + 1, n + 1):
                value = max(least[begin], cost(stage, begin, end))
                if value < now[end]:
                    now[end], before[end] = value, begin
        least = now
        come_from.append(before)
    if least[n] == _NEVER:
        return None
    begins, end = [], n
    for before in reversed(come_from):
        end = before[end]
        begins.append(end)
    return begins[-2::-1]


def _made(wiring: Wiring, begin: int, end: int) -> list[int]:
    return [value for _, gives in wiring.calls[begin:end] for value in gives]


def _taken(wiring: Wiring, begin: int, end: int) -> list[int]:
    """Values that these calls take and do not make, in order; the last stage also all outputs."""
    made = set(_made(wiring, begin, end))
    taken = [value for takes, _ in wiring.calls[begin:end] for value in takes]
    if end == len(wiring.calls):
        taken += wiring.outputs
    return list(dict.fromkeys(value for value in taken if value not in made))
