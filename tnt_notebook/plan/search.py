"""Finds the cut whose slowest stage is fastest."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from tnt_notebook.errors import MemoryLimitError, ModelError
from tnt_notebook.plan.partition import Wiring
from tnt_notebook.plan.profile import Profile, loads_from
from tnt_notebook.sizes import size

#: What to do about memory.
LESS_MEMORY = (
    "More stages, smaller micro-batches, a schedule that holds fewer of them, or recomputation of "
    "activations need less."
)

_NEVER = float("inf")


@dataclass(frozen=True)
class Loads:
    """What all runs of calls ask for, by the first call and the end.

    Attributes:
        calls: how many there are.
        seconds, once, held: matrices of ``calls`` x ``calls + 1``: seconds of a micro-batch, bytes
            that are there once, and bytes of each micro-batch under way; infinite where there is no
            call between both.
    """

    calls: int
    seconds: np.ndarray
    once: np.ndarray
    held: np.ndarray


def loads_of(wiring: Wiring, profile: Profile) -> Loads:
    """Those of a model; they serve any number of stages."""
    n = len(wiring.calls)
    seconds, once, held = np.full((3, n, n + 1), _NEVER)
    for begin in range(n):
        for end, load in enumerate(loads_from(wiring, profile, begin), begin + 1):
            seconds[begin, end], held[begin, end] = load.seconds, load.held_bytes
            once[begin, end] = load.bytes(0)
    return Loads(n, seconds, once, held)


def best_begins(
    loads: Loads,
    stages: int,
    held: Sequence[int] | None = None,
    limit_bytes: float = float("inf"),
    stages_per_rank: int = 1,
) -> list[int]:
    """Where to cut so that the slowest stage is as fast as can be: by dynamic programming. Raises
    ModelError if there are fewer calls than stages, MemoryLimitError if no cut fits into memory.

    Args:
        held: micro-batches that each stage has under way at most.
        limit_bytes: the memory that a rank may take; each of its stages has an equal part of it.
    """
    n = loads.calls
    if n < stages:
        raise ModelError(
            f"The model has {n} layer calls, so it cannot be cut into {stages} stages."
        )
    held = held or [1] * stages
    room = limit_bytes / stages_per_rank

    def memory(stage: int) -> np.ndarray:
        return loads.once + held[stage] * loads.held

    def seconds(stage: int) -> np.ndarray:
        return np.where(memory(stage) <= room, loads.seconds, _NEVER)

    begins = _least(n, stages, seconds)
    if begins is None:
        smallest = _least(n, stages, memory) or []
        bounds = enumerate(pairwise([0, *smallest, n]))
        most = max(float(memory(stage)[a, b]) for stage, (a, b) in bounds)
        needs = stages_per_rank * most
        raise MemoryLimitError(
            f"No cut into {stages} stages fits into {size(limit_bytes)} a rank: even the "
            f"smallest needs {size(needs)}. {LESS_MEMORY}",
            needs,
        )
    return begins


def _least(n: int, stages: int, costs: Callable[[int], np.ndarray]) -> list[int] | None:
    """Begins of the stages but the first, such that the largest ``costs(stage)[begin, end]`` is as
    small as can be; None where it is infinite.
    """
    # least[b]: of the best cut of calls 0 to b into the stages so far; come_from: its last begin.
    least = np.array([0.0] + [_NEVER] * n)
    come_from: list[np.ndarray] = []
    for stage in range(stages):
        values = np.maximum(least[:n, None], costs(stage))
        least = values.min(axis=0)
        come_from.append(values.argmin(axis=0))
    if least[n] == _NEVER:
        return None
    begins, end = [], n
    for before in reversed(come_from):
        end = int(before[end])
        begins.append(end)
    return begins[-2::-1]
