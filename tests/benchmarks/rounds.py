"""Interleaved rounds: on a noisy machine only the ratio of neighbours says anything."""

from __future__ import annotations

import os
import platform
import statistics
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Ratio:
    """Of seconds per round, A over B: median and quartiles, and that of the fastest rounds."""

    median: float
    low: float
    high: float
    fastest: float
    a_seconds: float
    b_seconds: float


def interleaved(a: Callable[[], float], b: Callable[[], float], rounds: int) -> Ratio:
    """Runs A B, B A, A B, ...; each returns the seconds it took."""
    pairs = []
    for i in range(rounds):
        if i % 2:
            second, first = b(), a()
        else:
            first, second = a(), b()
        pairs.append((first, second))
    ratios = [first / second for first, second in pairs]
    low, median, high = statistics.quantiles(ratios, n=4)
    return Ratio(
        median,
        low,
        high,
        min(first for first, _ in pairs) / min(second for _, second in pairs),
        statistics.median(first for first, _ in pairs),
        statistics.median(second for _, second in pairs),
    )


def machine() -> str:
    """What a figure was measured on."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    names = [line.split(":")[1].strip() for line in lines if line.startswith("model name")]
    model = names[0] if names else platform.machine()
    return f"{model}, {os.cpu_count()} cores, Linux {platform.release()}"
