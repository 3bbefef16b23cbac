"""What all ranks have measured over a run, as whoever looks at it gets it together."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tnt_notebook.telemetry.meters import METERS, Meter, Readings

#: Ranks that have a line each, and points of a line. The same numbers are in widgets/meters.js.
MOST_LINES, MOST_POINTS = 8, 600

Numbers = list[int | None]
"""One for each rank."""
Point = tuple[int, dict[str, Numbers]]
"""Unix time, and by meter what is drawn."""


@dataclass
class Curves:
    """By second (Unix time) and the letter of the meter, a number for each rank.

    Attributes:
        low: by rank, since when which words are said of memory that is nearly used up; "": none.
    """

    at: dict[int, dict[str, Numbers]] = field(default_factory=dict)
    low: dict[int, tuple[int, str]] = field(default_factory=dict)

    @property
    def warning(self) -> str:
        """What is said of memory now."""
        return "\n".join(words for _, (_, words) in sorted(self.low.items()) if words)


def add(curves: Curves, readings: Readings) -> set[int]:
    """Takes in what ranks tell; returns the seconds of which that is new."""
    ranks, changed = readings["ranks"], set()
    for rank, words in zip(ranks, readings.get("low", [""] * len(ranks)), strict=True):
        if readings["at"] and readings["at"][-1] >= curves.low.get(rank, (0, ""))[0]:
            curves.low[rank] = readings["at"][-1], words
    for letter in readings["values"].keys() & METERS:
        for second, row in zip(readings["at"], readings["values"][letter], strict=True):
            numbers = curves.at.setdefault(second, {}).setdefault(letter, [])
            numbers += [None] * (max(ranks) + 1 - len(numbers))
            for rank, number in zip(ranks, row, strict=True):
                if number is not None and numbers[rank] != number:
                    numbers[rank] = number
                    changed.add(second)
    return changed


def curves_of(frames: Sequence[Mapping[str, Any]]) -> Curves:
    """As the frames of a run say it."""
    curves = Curves()
    for frame in frames:
        for readings in frame.get("meters", []):
            add(curves, readings)
    return curves


def meters_in(curves: Curves) -> list[Meter]:
    """Those that have measured anything to be seen."""
    most: dict[str, int] = {}
    for values in curves.at.values():
        for letter, numbers in values.items():
            there = [number for number in numbers if number is not None]
            most[letter] = max([most.get(letter, 0), *there])
    return [meter for letter, meter in METERS.items() if most.get(letter, -1) >= meter.least]


def points(curves: Curves, seconds: Iterable[int], ranks: int) -> list[Point]:
    """What the card draws of these seconds: a number for each of few ranks; of more ranks the
    least, the median and the most."""
    return [
        (second, {letter: _of_ranks(own, ranks) for letter, own in curves.at[second].items()})
        for second in sorted(seconds)
    ]


def fewer(some: list[Point]) -> list[Point]:
    """As many points as a drawing needs, in whole powers of two of seconds, and the last one.
    ``widgets/meters.js`` does the same."""
    every = 1
    while len(some) > MOST_POINTS:
        every *= 2
        some = [*(point for point in some[:-1] if point[0] % every == 0), some[-1]]
    return some


def _of_ranks(numbers: Numbers, ranks: int) -> Numbers:
    there = [number for number in numbers if number is not None]
    if ranks <= MOST_LINES or not there:
        return numbers
    return [min(there), round(statistics.median(there)), max(there)]


def said(curves: Curves, meter: Meter) -> float:
    """Of a meter that there is, one number for the whole run."""
    there = [
        number
        for values in curves.at.values()
        for number in values.get(meter.letter, [])
        if number is not None
    ]
    return max(there) if meter.said == "most" else statistics.fmean(there)
