"""Interleaved rounds: on a noisy machine only the ratio of neighbours says anything."""

import os
import platform
import statistics
import sys
import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from tests.support.cases import THOROUGH

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")

#: Seconds between two lines about how far the rounds are.
_SAY_EVERY = 15.0


@dataclass(frozen=True)
class Ratio:
    """Of seconds per round, A over B: median and quartiles, and that of the fastest rounds."""

    median: float
    low: float
    high: float
    fastest: float
    a_seconds: float
    b_seconds: float
    rounds: int

    def __str__(self) -> str:
        return f"{self.median:.2f} ({self.low:.2f} to {self.high:.2f})"

    def sentence(self, digits: int = 3) -> str:
        """The ratio, how far it may be trusted, and from how many rounds it is."""
        low, high, fastest = (f"{x:.{digits}f}" for x in (self.low, self.high, self.fastest))
        return (
            f"{self.median:.{digits}f} (quartiles {low} to {high}; fastest rounds {fastest}; "
            f"{counted(self.rounds)})"
        )


def counted(rounds: int) -> str:
    """How many there were, in words."""
    return "1 round: it says little" if rounds == 1 else f"{rounds} rounds"


def tell(line: str) -> None:
    """Says something to whoever waits; standard output is for the results."""
    print(line, file=sys.stderr, flush=True)


def interleaved(
    a: Callable[[], float], b: Callable[[], float], rounds: int, seconds: float
) -> Ratio:
    """Runs A B, B A, A B, ...; each returns the seconds it took. Arguments as of `rotating`."""
    return ratio(*rotating({"a": a, "b": b}, rounds, seconds).values())


def rotating(
    contestants: Mapping[K, Callable[[], T]], rounds: int, seconds: float
) -> dict[K, list[T]]:
    """Runs all of them in each round; who begins, and which way round, changes.

    Args:
        rounds: at most.
        seconds: no round begins that would probably end later, but for the first; with
            ``TNT_THOROUGH=1`` there is no such limit.

    Returns:
        For each contestant what it returned in each round.
    """
    results: dict[K, list[T]] = {name: [] for name in contestants}
    names = list(contestants)
    began = said = time.monotonic()
    for i in range(rounds):
        now = time.monotonic()
        if i and not THOROUGH and (now - began) * (i + 1) / i > seconds:
            tell(f"  {i} of {rounds} rounds in {now - began:.0f} s: there is no time for more")
            break
        if now - said > _SAY_EVERY:
            tell(f"  {i} of {rounds} rounds")
            said = now
        order = [names[(i + k) % len(names)] for k in range(len(names))]
        for name in reversed(order) if i // len(names) % 2 else order:
            results[name].append(contestants[name]())
    return results


def ratio(a: Sequence[float], b: Sequence[float]) -> Ratio:
    """A over B, from seconds that were measured in the same rounds."""
    ratios = [first / second for first, second in zip(a, b, strict=True)]
    low, median, high = quartiles(ratios)
    times = statistics.median(a), statistics.median(b)
    return Ratio(median, low, high, min(a) / min(b), *times, len(ratios))


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
