"""Runs the contestants in interleaved rounds, size by size."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from tests.benchmarks import native
from tests.benchmarks.allreduce.field import FIELD, FLOOR, MODES, Contestant, Entrant
from tests.benchmarks.allreduce.rank_floor import CAPACITY
from tests.benchmarks.contestants import commands
from tests.benchmarks.cores import cache_line_ns
from tests.benchmarks.job import Job
from tests.benchmarks.lineup import Lineup
from tests.benchmarks.rounds import counted, ratio, rotating, tell


@dataclass(frozen=True)
class Entry:
    """What an entrant did at one size: of each round the median and the fastest, in seconds."""

    size: int
    mode: str
    label: str
    medians: list[float]
    fastest: list[float]


@dataclass
class Race:
    """What was measured.

    Attributes:
        ranks: how many.
        entries: all results.
        line_ns: for each size the round trip of a cache line before and after it was measured.
        notes: who took part, and who was left out.
    """

    ranks: int
    entries: list[Entry] = field(default_factory=list)
    line_ns: dict[int, tuple[float | None, float | None]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


def run(
    ranks: int,
    sizes: Sequence[int],
    rounds: int,
    seconds: float,
    contestants: Sequence[Contestant] = FIELD,
) -> Race:
    """Races them on this machine.

    Args:
        sizes: bytes of the vectors.
        rounds: how often each contestant runs at each size; between its turns all others do.
        seconds: after which no round of a size begins.
    """
    race = Race(ranks)
    with native.library() as library:
        probe = native.loaded(library)

        def start(contestant: Contestant) -> Job:
            shared = probe.floor_bytes(ranks, CAPACITY) if contestant is FLOOR else 0
            command = commands(contestant.runtime, ranks, [contestant.module])
            return Job(ranks, command, library, shared)

        entrants = [Entrant(c.name, mode) for mode in MODES for c in contestants if mode in c.modes]
        with Lineup({c.name: partial(start, c) for c in contestants}) as lineup:
            for size in sizes:
                before = cache_line_ns(probe)
                race.entries += measured(lineup, entrants, size, rounds, seconds)
                race.line_ns[size] = before, cache_line_ns(probe)
                tell(f"  {ranks} ranks, {size} bytes: done")
            race.notes = lineup.notes()
    return race


def measured(
    lineup: Lineup, entrants: Sequence[Entrant], size: int, rounds: int, seconds: float
) -> list[Entry]:
    """The rounds of one size, of all entrants whose job takes part."""
    count = iterations(size)

    def turn(entrant: Entrant) -> tuple[float, float] | None:
        """Median and fastest of what the slowest rank took in each iteration."""
        how = {"mode": entrant.mode, "algorithm": entrant.algorithm}
        answers = lineup.ask(entrant.contestant, bytes=size, iterations=count, **how)
        if answers is None:
            return None
        slowest = [max(of_ranks) for of_ranks in zip(*answers, strict=True)]
        return statistics.median(slowest), min(slowest)

    present = set(lineup)
    entrants = [entrant for entrant in entrants if entrant.contestant in present]
    results = rotating([partial(turn, entrant) for entrant in entrants], rounds, seconds)
    return [
        Entry(size, entrant.mode, entrant.label, *map(list, zip(*turns, strict=True)))
        for entrant, turns in zip(entrants, results, strict=True)
        if None not in turns
    ]


def iterations(size: int) -> int:
    """How often a contestant repeats in its turn: some 64 MB worth, 3 to 200 times."""
    return max(3, min(200, (64 << 20) // size))


def best_over(here: Mapping[str, Entry], others: Iterable[str], ours: str) -> str:
    """The time of the one of the others with the lowest median over ours, and who that is."""
    present = [here[label] for label in others if label in here]
    if ours not in here or not present:
        return ""
    best = min(present, key=lambda entry: statistics.median(entry.medians))
    return f"{ratio(best.medians, here[ours].medians)} {best.label}"


def rounds_of(entries: Sequence[Entry]) -> str:
    """How many rounds there were, in words: not the same for all sizes where time was short."""
    made = [len(entry.medians) for entry in entries] or [0]
    few, many = min(made), max(made)
    return counted(many) if few == many else f"{few} to {many} rounds"
