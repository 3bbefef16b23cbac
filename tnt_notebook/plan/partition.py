"""A list of calls cut into consecutive stages, and what goes from stage to stage.

    calls    0 1 2 3 4 | 5 6 7 | 8 9          a stage is a run of calls
    values   2 --------> 6                    a value goes from the stage that makes it straight to
             2 ------------------> 9          every stage that takes it, also over several stages

Only numbers of calls and values occur here, so that the notebook can plan without Keras.
"""

from __future__ import annotations

import difflib
from collections.abc import Sequence
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

    def made(self, begin: int, end: int) -> list[int]:
        """Values that calls ``begin`` to ``end`` (without it) give."""
        return [value for _, gives in self.calls[begin:end] for value in gives]

    def taken(self, begin: int, end: int) -> list[int]:
        """Values that they take and do not make, in order; the last calls also take all outputs."""
        made = set(self.made(begin, end))
        taken = [value for takes, _ in self.calls[begin:end] for value in takes]
        if end == len(self.calls):
            taken += self.outputs
        return list(dict.fromkeys(value for value in taken if value not in made))


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
    """The stages that begin with the given calls; the first begins with call 0. Raises ModelError
    where a stage would be empty."""
    bounds = [0, *begins, len(wiring.calls)]
    if any(a >= b for a, b in pairwise(bounds)):
        raise ModelError(
            f"Stages cannot begin with calls {list(begins)}: each must have at least one of the "
            f"{len(wiring.calls)} calls of the model."
        )
    stage_of = {v: s for s, (a, b) in enumerate(pairwise(bounds)) for v in wiring.made(a, b)}
    taken = [wiring.taken(a, b) for a, b in pairwise(bounds)]
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
    """The calls with which stages begin, from the names of each call's layer and of those that
    begin a stage, at their first call. Raises ModelError if there is no such layer, or it begins
    the model."""
    begins = []
    for name in cut_at:
        if name not in names:
            close = difflib.get_close_matches(name, dict.fromkeys(names), 3)
            hint = f" Is it {' or '.join(map(repr, close))}?" if close else ""
            raise ModelError(f"cut_at names {name!r}, and the model has no such layer.{hint}")
        begins.append(list(names).index(name))
    if 0 in begins:
        raise ModelError(
            f"cut_at names {names[0]!r}, the first layer of the model: no stage can end before it."
        )
    return sorted(set(begins))
