"""Who takes part in a measurement: algorithms that fit the ranks, and the memory they work on."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

from tnt_notebook.choices import DTYPES
from tnt_notebook.comm import _kernels, rules, schedules
from tnt_notebook.comm.channels import TUNING
from tnt_notebook.comm.tuning.shift import shift, shift_in_place
from tnt_notebook.comm.world import World
from tnt_notebook.errors import CommunicationError

LIMIT = "limit"
KB = 1024

Call = Callable[[], object]

#: What vectors of all sizes are cut from: what is given, and what is found.
Memory = tuple[np.ndarray, np.ndarray]

# Numbers that all floats hold: the sum of as many ones is exact.
_MOST_RANKS_CHECKED = 256


@dataclass(frozen=True)
class Question:
    """What to measure.

    Attributes:
        max_bytes: of the largest vector; the smallest has 1 KB, and each the fourfold of the last.
        dtype: of its elements.
        algorithms: by name; none: all that fit the ranks.
        in_place: in a bucket, rather than from one array into another.
        rounds: how often each algorithm has its turn, at each size.
    """

    max_bytes: int = 16 << 20
    dtype: str = "float32"
    algorithms: tuple[str, ...] = ()
    in_place: bool = False
    rounds: int = 21

    @property
    def sizes(self) -> list[int]:
        """Bytes of the vectors."""
        sizes = [KB]
        while sizes[-1] * 4 <= self.max_bytes:
            sizes.append(sizes[-1] * 4)
        return sizes


def possible(over: World, question: Question) -> list[str]:
    """The algorithms that take part.

    Raises:
        ValueError: the question makes no sense among these ranks.
    """
    if over.size < 2:
        raise ValueError("A single rank has no peer to exchange with: start at least two.")
    if question.dtype not in DTYPES:
        raise ValueError(f"dtype {question.dtype!r} is not one of {', '.join(DTYPES)}.")
    if question.max_bytes < KB:
        raise ValueError("The smallest vector has 1 KB: measure up to that or more.")
    if question.rounds < 1:
        raise ValueError(f"{question.rounds} rounds: at least one is needed.")
    known = schedules.names("allreduce")
    task = _task(over, question, KB)
    fitting = [name for name in known if _kernels.fits(name, task)]
    for name in question.algorithms:
        if name not in known:
            raise ValueError(f"Algorithm {name!r} is not one of {', '.join(known)}.")
        if name not in fitting:
            raise ValueError(
                f"Algorithm {name!r} does not fit {over.size} ranks on {len(set(over.node))} "
                f"node(s); those that do: {', '.join(fitting)}."
            )
    return [name for name in fitting if name in question.algorithms or not question.algorithms]


def chosen(over: World, question: Question, size: int) -> str:
    """The algorithm that the rules in use take."""
    return _kernels.choose(_task(over, question, size), rules.for_engine(over.rules))


def memory_for(over: World, question: Question) -> Memory:
    """Memory for vectors of all sizes that are asked for."""
    dtype = _dtype(question)
    count = question.sizes[-1] // dtype.itemsize
    if question.in_place:
        over.bucket(count, dtype, TUNING.first)  # smaller ones will share its memory
    return np.ones(count, dtype), np.zeros(count, dtype)


def contestants_at(
    over: World, question: Question, names: Sequence[str], size: int, memory: Memory
) -> dict[str, Call]:
    """What each algorithm, and the limit, does in its turn; all have been called once, and the sums
    were right.
    """
    dtype = _dtype(question)
    count = size // dtype.itemsize
    given, found = (vector[:count] for vector in memory)

    def from_to(algorithm: Any) -> Call:
        return functools.partial(over.allreduce_into, found, given, algorithm=algorithm)

    contestants: dict[str, Call] = {}
    if question.in_place:
        # One channel serves all measurements.
        bucket = over.bucket(count, dtype, TUNING.first)
        for name in names:
            bucket.array.fill(1)
            contestants[name] = functools.partial(bucket.allreduce, algorithm=name)
            contestants[name]()
            _check(over, bucket.array, name)
        bucket.array.fill(0)  # so that it does not grow from call to call
    else:
        for name in names:
            found.fill(0)
            contestants[name] = from_to(name)
            contestants[name]()
            _check(over, found, name)
    contestants[LIMIT] = from_to(shift_in_place if question.in_place else shift)
    contestants[LIMIT]()
    return contestants


def _check(over: World, found: np.ndarray, name: str) -> None:
    expected = np.full(1, over.size).astype(found.dtype)
    if over.size <= _MOST_RANKS_CHECKED and not (found == expected).all():
        raise CommunicationError(
            f"rank {over.rank}: the sum of ones by {name!r} over {over.size} ranks is not "
            f"{over.size}. The backend is broken here: run its tests (make test-kernels)."
        )


def _task(over: World, question: Question, size: int) -> schedules.Task:
    item = _dtype(question).itemsize
    return schedules.Task(
        "allreduce", over.rank, over.size, size // item, item,
        node=over.node, in_place=question.in_place,
    )  # fmt: skip


def _dtype(question: Question) -> np.dtype:
    return np.dtype(ml_dtypes.bfloat16 if question.dtype == "bfloat16" else question.dtype)
