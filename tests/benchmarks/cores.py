"""On which cores the ranks of a benchmark run, and what these cores are like just now."""

import os

from tests.benchmarks import native

#: Said beside every table.
POLICY = "every rank, with all its threads, is bound to core rank mod cores"


def cores() -> list[int]:
    """The cores that this process may use."""
    return sorted(os.sched_getaffinity(0))


def core_of(rank: int) -> int:
    """Where a rank runs: the same for all contestants."""
    available = cores()
    return available[rank % len(available)]


def are_shared(ranks: int) -> bool:
    """Whether there are more ranks than cores."""
    return ranks > len(cores())


def cache_line_ns() -> float | None:
    """The round trip of a cache line between the first two cores; ``None`` where there is one.

    Some 50 ns mean two virtual cores on one physical core, 100 to 300 ns two of them. The machine
    below a virtual one may change it at any time.
    """
    available = cores()
    if len(available) < 2:
        return None
    first, second, *_ = available
    os.sched_setaffinity(0, {first})
    try:
        return 1e9 * native.loaded(native.library()).cache_line_round_trip(second)
    finally:
        os.sched_setaffinity(0, available)
