"""Interleaved rounds: on a noisy machine only the ratio of neighbours says anything."""

from __future__ import annotations

import os
import platform
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")


@dataclass(frozen=True)
class Ratio:
    """Of seconds per round, A over B: median and quartiles, and that of the fastest rounds."""

    median: float
    low: float
    high: float
    fastest: float
    a_seconds: float
    b_seconds: float

    def __str__(self) -> str:
        return f"{self.median:.2f} ({self.low:.2f} to {self.high:.2f})"


def interleaved(a: Callable[[], float], b: Callable[[], float], rounds: int) -> Ratio:
    """Runs A B, B A, A B, ...; each returns the seconds it took."""
    first, second = rotating((a, b), rounds)
    return ratio(first, second)


def rotating(contestants: Sequence[Callable[[], T]], rounds: int) -> list[list[T]]:
    """Runs all of them in each round; who begins, and which way round, changes.

    Returns:
        For each contestant what it returned in each round.
    """
    results: list[list[T]] = [[] for _ in contestants]
    for i in range(rounds):
        order = [(i + k) % len(contestants) for k in range(len(contestants))]
        for k in reversed(order) if i // len(contestants) % 2 else order:
            results[k].append(contestants[k]())
    return results


def ratio(a: Sequence[float], b: Sequence[float]) -> Ratio:
    """A over B, from seconds that were measured in the same rounds."""
    ratios = [first / second for first, second in zip(a, b, strict=True)]
    low, median, high = quartiles(ratios)
    return Ratio(median, low, high, min(a) / min(b), statistics.median(a), statistics.median(b))


def quartiles(values: Sequence[float]) -> tuple[float, float, float]:
    """The lower one, the median and the upper one."""
    low, median, high = statistics.quantiles(values, n=4) if len(values) > 1 else [*values] * 3
    return low, median, high


def machine() -> str:
    """What a figure was measured on."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    names = [line.split(":")[1].strip() for line in lines if line.startswith("model name")]
    model = names[0] if names else platform.machine()
    return f"{model}, {os.cpu_count()} cores, Linux {platform.release()}"
