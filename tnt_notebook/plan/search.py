"""Finds the cut whose slowest stage is fastest."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from tnt_notebook.errors import MemoryLimitError, ModelError
from tnt_notebook.plan.partition import Wiring
from tnt_notebook.plan.profile import Profile
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
        seconds: matrix of ``calls`` x ``calls + 1``, of a micro-batch; infinite where there is no
            call between both, as the others are.
        state, held, working, update: bytes: of weights, gradients and the optimizer's state; of
            each micro-batch under way; of what is just being done; and of the update in the end.
    """

    calls: int
    seconds: np.ndarray
    state: np.ndarray
    held: np.ndarray
    working: np.ndarray
    update: np.ndarray

    def bytes(self, held: int) -> np.ndarray:
        """With so many micro-batches under way: see :meth:`.profile.Load.bytes`."""
        return self.state + np.maximum(held * self.held + self.working, self.update)


def loads_of(wiring: Wiring, profile: Profile) -> Loads:
    """Those of a model; they serve any number of stages. As
    :func:`~tnt_notebook.plan.profile.loads_from` has them, of all runs at once."""
    n = len(wiring.calls)
    takes = [set(takes) for takes, _ in wiring.calls]
    keeps = [set(kept) for kept in profile.kept]
    takes[-1] |= set(wiring.outputs)  # by the loss
    keeps[-1] |= set(wiring.outputs)
    made_by = {v: call for call, (_, gives) in enumerate(wiring.calls) for v in gives}
    given = dict.fromkeys(wiring.inputs, -1) | made_by
    size = profile.value_bytes
    brought = _grown(takes, lambda v: profile.transfer.get(v, 0.0), made_by)
    taken = _grown(takes, lambda v: size.get(v, 0), given)
    activations = _grown(keeps, lambda v: size.get(v, 0))
    activations += np.triu(np.broadcast_to(np.array(profile.inner_bytes, float), (n, n)))
    uses = [set(uses) for uses in profile.uses]
    state, gradients = _grown(uses, profile.state_bytes), _grown(uses, profile.gradient_bytes)
    work = np.triu(np.broadcast_to(np.array(profile.seconds), (n, n)))
    nothing = np.zeros((n, n))
    held, once = (taken, activations) if profile.recompute else (activations, nothing)
    working = np.cumsum(once + profile.adds_up * gradients, axis=1)
    return Loads(
        n,
        _of_runs(np.cumsum(work, axis=1) + np.cumsum(brought, axis=1)),
        _of_runs(np.cumsum(state + gradients, axis=1)),
        _of_runs(np.cumsum(held, axis=1)),
        _of_runs(working + _most(n, profile.working_bytes)),
        _of_runs(_most(n, profile.update_bytes)),
    )


def _grown(
    uses: Sequence[set[int]],
    worth: Callable[[int], float],
    made_by: Mapping[int, int] | None = None,
) -> np.ndarray:
    """By how much a run that begins with one call grows with another: by what is new there.

    Args:
        uses: of each call, numbers of values or variables.
        worth: of one.
        made_by: which call gives each; only a run that begins after it must get it, and what is not
            there never comes. None: all have to be there.
    """
    grown = np.zeros((len(uses), len(uses)))
    last: dict[int, int] = {}
    for call, used in enumerate(uses):
        for one in used if made_by is None else used & made_by.keys():
            begin = max(last.get(one, -1), -1 if made_by is None else made_by[one]) + 1
            grown[begin : call + 1, call] += worth(one)
            last[one] = call
    return grown


def _most(calls: int, bytes: Callable[[int], int]) -> np.ndarray:
    """Of the calls of a run, the most: by its first and its last one."""
    of_each = np.array([bytes(call) for call in range(calls)], float)
    return np.maximum.accumulate(np.triu(np.broadcast_to(of_each, (calls, calls))), axis=1)


def _of_runs(by_last_call: np.ndarray) -> np.ndarray:
    """By the first call and the end; infinite where the end is not behind the first call."""
    n = len(by_last_call)
    runs = np.full((n, n + 1), _NEVER)
    runs[:, 1:] = np.where(np.tri(n, k=-1, dtype=bool), _NEVER, by_last_call)
    return runs


def best_begins(
    loads: Loads,
    stages: int,
    held: Sequence[int] | None = None,
    limit_bytes: float = float("inf"),
    stages_per_rank: int = 1,
    slowness: Sequence[float] = (),
) -> list[int]:
    """Where to cut so that the slowest stage is as fast as can be: by dynamic programming. Raises
    ModelError if there are fewer calls than stages, MemoryLimitError if no cut fits into memory.

    Args:
        held: micro-batches that each stage has under way at most.
        limit_bytes: the memory that a rank may take; each of its stages has an equal part of it.
        slowness: how many times as long each stage takes on its rank; empty: all are alike.
    """
    n = loads.calls
    if n < stages:
        raise ModelError(
            f"The model has {n} layer calls, so it cannot be cut into {stages} stages."
        )
    held = held or [1] * stages
    room = limit_bytes / stages_per_rank

    bytes_of = functools.cache(loads.bytes)  # many stages have as many under way

    @functools.cache
    def within(held: int, times: float) -> np.ndarray:
        return np.where(bytes_of(held) <= room, times * loads.seconds, _NEVER)

    def memory(stage: int) -> np.ndarray:
        return bytes_of(held[stage])

    def seconds(stage: int) -> np.ndarray:
        return within(held[stage], slowness[stage] if slowness else 1.0)

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
