"""Interleaved rounds of allreduces of one size."""

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from tests.benchmarks.lineup import Lineup
from tests.benchmarks.rounds import counted, ratio


class Entrant(NamedTuple):
    """What is measured in one turn: a contestant in one mode.

    Attributes:
        algorithm: of this project's backend; empty: the one that it chooses.
    """

    contestant: str
    mode: str = "in place"
    algorithm: str = ""

    @property
    def label(self) -> str:
        """The name in tables."""
        return f"{self.contestant} {self.algorithm}".strip()


@dataclass(frozen=True)
class Entry:
    """What an entrant did at one size: of each round the median and the fastest, in seconds."""

    size: int
    mode: str
    label: str
    medians: list[float]
    fastest: list[float]


def measured(
    lineup: Lineup, entrants: Sequence[Entrant], size: int, rounds: int, seconds: float
) -> list[Entry]:
    """The rounds of one size in bytes, of all entrants whose job takes part."""
    # How often a contestant repeats in its turn: some 64 MB worth.
    request = {"size": size, "iterations": max(3, min(200, (64 << 20) // size))}
    turns = {
        e: (e.contestant, {**request, "mode": e.mode, "algorithm": e.algorithm}) for e in entrants
    }

    def slowest(answers: list[list[float]]) -> tuple[float, float]:
        """Median and fastest of what the slowest rank took in each iteration."""
        of_iterations = [max(of_ranks) for of_ranks in zip(*answers, strict=True)]
        return statistics.median(of_iterations), min(of_iterations)

    return [
        Entry(size, entrant.mode, entrant.label, *map(list, zip(*results, strict=True)))
        for entrant, results in lineup.rounds(turns, slowest, rounds, seconds).items()
    ]


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
