"""Finds the cut whose slowest stage is fastest."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

from tnt_notebook.errors import ModelError
from tnt_notebook.plan.partition import Wiring
from tnt_notebook.plan.profile import Load, Profile, loads_from
from tnt_notebook.sizes import size

#: What to do about memory.
LESS_MEMORY = (
    "More stages, smaller micro-batches, a schedule that holds fewer of them, or recomputation of "
    "activations need less."
)

_NEVER = float("inf")


def best_begins(
    wiring: Wiring,
    profile: Profile,
    stages: int,
    held: Sequence[int] | None = None,
    limit_bytes: float = float("inf"),
    stages_per_rank: int = 1,
) -> list[int]:
    """Where to cut so that the slowest stage is as fast as can be: by dynamic programming. Raises
    ModelError if there are fewer calls than stages, or no cut fits into memory.

    Args:
        held: micro-batches that each stage has under way at most.
        limit_bytes: the memory that a rank may take; each of its stages has an equal part of it.
    """
    n = len(wiring.calls)
    if n < stages:
        raise ModelError(
            f"The model has {n} layer calls, so it cannot be cut into {stages} stages."
        )
    held = held or [1] * stages
    loads = [list(loads_from(wiring, profile, begin)) for begin in range(n)]
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
            f"No cut into {stages} stages fits into {size(limit_bytes)} a rank: even the "
            f"smallest needs {size(needs)}. {LESS_MEMORY}"
        )
    return begins


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
