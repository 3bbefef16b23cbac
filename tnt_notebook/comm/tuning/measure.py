"""Times the algorithms of an allreduce on the ranks of a world, in interleaved rounds.

::

    size 64 KB   round 0   ring  direct  limit      each: barrier, call, barrier, call, ...
                 round 1   direct  limit  ring
                 round 2   limit  ring  direct
                 round 3   limit  direct  ring      and the other way round

So whatever else the machine does meets all algorithms alike. A call takes as long as it does on the
slowest rank. A round counts with the mean of its calls: where a short call takes one of two times,
as it may where ranks wake each other, a median would jump from one to the other.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tnt_notebook.comm.tuning.conclude import best_of, fit_of, relative_of
from tnt_notebook.comm.tuning.contestants import (
    KB,
    LIMIT,
    Call,
    Memory,
    Question,
    chosen,
    contestants_at,
    memory_for,
    possible,
)
from tnt_notebook.comm.world import World

_MOST_CALLS = 20  # in a turn
_BYTES_OF_A_TURN = 512 * KB

#: Called with what has been measured so far, and with the place in the rounds.
Report = Callable[[dict[str, Any]], None]


def measure(
    over: World, question: Question, report: Report = lambda so_far: None
) -> dict[str, Any]:
    """Answers a question. Collective; Ctrl-C works as in any collective.

    Args:
        over: at least two ranks.
        report: called several times, on all ranks, with ``{"bytes", "round", "result"}``: where the
            measurement is, and the result so far.

    Returns:
        Plain data, the same on all ranks::

            {"collective": "allreduce", "dtype", "in_place", "rounds", "ranks", "nodes", "links",
             "entries": [{"algorithm", "bytes", "median_s", "low_s", "high_s", "bus_bytes_per_s",
                          "relative"}],
             "limit": [{"bytes", "median_s", "low_s", "high_s", "bus_bytes_per_s"}],
             "rules": [{"bytes", "algorithm"}],
             "fits": [{"algorithm", "latency_s", "bytes_per_s"}],
             "best": [{"algorithm", "from_bytes", "up_to_bytes"}]}

        with quartiles ``low_s`` and ``high_s``, and the bus bandwidth ``2 (p - 1) / p * bytes / t``
        of the median. ``relative``: how many times as long as the fastest at that size, by the
        median of the ratios in each round, which says more than medians on a machine whose speed
        changes. ``limit``: see :mod:`~tnt_notebook.comm.tuning.shift`; ``fits`` and ``best``:
        see :mod:`~tnt_notebook.comm.tuning.conclude`; ``rules``: what those in use would take.

    Raises:
        ValueError: the question makes no sense here; before anything is measured.
    """
    names = possible(over, question)
    result: dict[str, Any] = {
        "collective": "allreduce", "dtype": question.dtype, "in_place": question.in_place,
        "rounds": question.rounds, "ranks": over.size, "nodes": len(set(over.node)),
        "links": over.links.describe(), "entries": [], "limit": [], "rules": [], "fits": [],
        "best": [],
    }  # fmt: skip
    memory = memory_for(over, question)
    for size in question.sizes:

        def tell(done: int, size: int = size) -> None:
            report({"bytes": size, "round": done, "result": result})

        times = _times(over, question, names, size, memory, tell)
        result["limit"].append(_entry(size, times.pop(LIMIT), over.size))
        for (name, seconds), relative in zip(times.items(), relative_of(times), strict=True):
            entry = _entry(size, seconds, over.size)
            result["entries"].append({"algorithm": name, **entry, "relative": relative})
        result["rules"].append({"bytes": size, "algorithm": chosen(over, question, size)})
        result["fits"] = [
            {"algorithm": name, **fit_of([e for e in result["entries"] if e["algorithm"] == name])}
            for name in names
        ]
        result["best"] = best_of(result["entries"])
        tell(question.rounds)
    return result


def _times(
    over: World,
    question: Question,
    names: Sequence[str],
    size: int,
    memory: Memory,
    tell: Callable[[int], None],
) -> dict[str, np.ndarray]:
    """Seconds of each algorithm's turns, and of the limit's, at one size."""
    calls = max(1, min(_MOST_CALLS, _BYTES_OF_A_TURN // size))
    contestants = contestants_at(over, question, names, size, memory)
    meet = over.barrier
    own = np.zeros((question.rounds, len(contestants), calls), np.int64)
    turns = list(contestants.values())
    for i in range(question.rounds):
        tell(i)
        order = [(i + k) % len(turns) for k in range(len(turns))]
        for k in reversed(order) if i // len(turns) % 2 else order:
            own[i, k] = _turn(meet, turns[k], calls)
    everywhere = over.allgather(own[None])
    slowest = everywhere.max(axis=0).mean(axis=2) * 1e-9
    return {name: slowest[:, k] for k, name in enumerate(contestants)}


def _turn(meet: Call, call: Call, calls: int) -> list[int]:
    now = time.perf_counter_ns
    if calls > 1:
        call()  # caches are warm: of small vectors this is what counts
    nanoseconds = []
    for _ in range(calls):
        meet()
        began = now()
        call()
        nanoseconds.append(now() - began)
    return nanoseconds


def _entry(size: int, seconds: np.ndarray, ranks: int) -> dict[str, Any]:
    low, median, high = (float(q) for q in np.quantile(seconds, [0.25, 0.5, 0.75]))
    return {
        "bytes": size,
        "median_s": median,
        "low_s": low,
        "high_s": high,
        "bus_bytes_per_s": 2 * (ranks - 1) / ranks * size / median,
    }
