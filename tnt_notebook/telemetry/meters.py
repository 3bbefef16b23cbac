"""What ranks use of their machines over a run: processors, memory, network, GPU, power.

Each rank measures once a second, and tells it with its activities. The meters are a table,
``meters.json``, for Python and the browser; ``engine/meters.py`` has a function for each. Those of
a host are told by its first rank.
"""

from __future__ import annotations

import contextlib
import json
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NotRequired, TypedDict

from tnt_notebook.telemetry.pace import slower
from tnt_notebook.telemetry.step_trace import Count


@dataclass(frozen=True)
class Meter:
    """A row of the table.

    Attributes:
        letter: by which it travels.
        name: what a column of a table is called.
        label: what a drawing calls it.
        unit: ``%``, ``MiB``, ``kB/s`` or ``W``: of whole numbers.
        top: where its axis ends; 0: at what was most.
        said: of a whole run, the mean over time and ranks, or what was most.
        colour: what the card's theme calls it.
        meaning: for the reader of the table.
        least: below it there is nothing to see: a host without others hardly uses its network.
    """

    letter: str
    name: str
    label: str
    unit: str
    top: int
    said: Literal["mean", "most"]
    colour: str
    meaning: str
    least: int = 0


_ROWS = json.loads(Path(__file__).with_name("meters.json").read_bytes())
#: The meters by letter, in the order in which they are drawn.
METERS = {row["letter"]: Meter(**row) for row in _ROWS}

#: Of a long run a rank measures less often: so many times since it began, and as many again
#: whenever it has become e times as old.
_POINTS = 500
#: Seconds after which a rank tells what nobody has gathered: while it imports and traces, say.
_LATE_S = 4

#: Measures now; None: it cannot be told.
Measure = Callable[[], float | None]


class Readings(TypedDict):
    """What some ranks have measured at some times."""

    ranks: list[Count]
    at: list[Count]
    """Unix times in whole seconds, the same on all ranks."""
    values: dict[str, list[list[Count | None]]]
    """By the letter of the meter: for each time, a number for each of the ranks."""
    low: NotRequired[list[str]]
    """Of each rank, what is said of memory that is nearly used up; "": it is not."""


def is_whole(readings: Readings) -> bool:
    """Whether there is a number for each time and rank."""
    ranks, times = len(readings["ranks"]), len(readings["at"])
    return len(readings.get("low", readings["ranks"])) == ranks and all(
        len(rows) == times and all(len(row) == ranks for row in rows)
        for rows in readings["values"].values()
    )


class Sampler:
    """Measures on this rank. Of one thread; another gathers.

    Attributes:
        measures: by the letter of the meter. To add some, give it another dict.
        low: says that memory is nearly used up.
    """

    def __init__(
        self, rank: int, ranks: int, measures: dict[str, Measure], low: Callable[[], str] = str
    ) -> None:
        """
        Args:
            ranks: how many measure.
        """
        self.measures = measures
        self.rank, self.low, self._pace = rank, low, slower(ranks)
        self._began = time.time()
        self._second = self._gathered = self._told = 0
        self._rows: list[tuple[int, dict[str, int]]] = []
        self._words, self._is_urgent = "", False

    def measure(self, now: float) -> bool:
        """Measures, if it is time to; returns whether others must hear of it at once."""
        if int(now) == self._second or not self.measures:
            return False
        self._second = int(now)
        words = self.low()
        is_urgent = bool(words) != bool(self._words)
        self._words, self._is_urgent = words, self._is_urgent or is_urgent
        # Powers of two: so that all ranks measure in the same seconds, whenever they began.
        often = self._pace * max(1.0, (now - self._began) / _POINTS)
        every = 1 if is_urgent else 2 ** math.ceil(math.log2(often))
        at = self._second - self._second % every
        if self._rows and at <= self._rows[-1][0]:
            return False
        values = {}
        for letter, measure in self.measures.items():
            # What cannot be read just now, or not any more, is not there; training goes on.
            with contextlib.suppress(OSError, ValueError):
                if (value := measure()) is not None:
                    values[letter] = max(0, round(value))
        self._rows.append((at, values))
        return is_urgent

    def gather(self) -> Readings | None:
        """What is new since the last call; None where nothing is."""
        since, self._gathered = self._gathered, len(self._rows)
        return self._readings(since)

    def tell(self, all_of_it: bool) -> Readings | None:
        """What nobody has heard of for some seconds; or all of it, also where memory is low now, or
        is not any more."""
        since = max(self._gathered, self._told)
        late = [at for at, _ in self._rows[since:] if time.time() - at >= _LATE_S]
        if not (late or all_of_it or self._is_urgent):
            return None
        self._told, self._is_urgent = len(self._rows), False
        return self._readings(since)

    def _readings(self, since: int) -> Readings | None:
        rows = self._rows[since:]
        if not rows:
            return None
        letters = dict.fromkeys(letter for _, values in rows for letter in values)
        told = Readings(
            ranks=[self.rank],
            at=[at for at, _ in rows],
            values={letter: [[values.get(letter)] for _, values in rows] for letter in letters},
        )
        if self._words:
            told["low"] = [self._words]
        return told


def joined(some: Sequence[Readings]) -> Readings:
    """Those of several ranks as one."""
    ranks = sorted({rank for one in some for rank in one["ranks"]})
    at = sorted({second for one in some for second in one["at"]})
    row, column = ({key: i for i, key in enumerate(keys)} for keys in (at, ranks))
    values: dict[str, list[list[int | None]]] = {}
    low = [""] * len(ranks)
    for one in some:
        for rank, words in zip(one["ranks"], one.get("low", []), strict=False):
            low[column[rank]] = words
        for letter, rows in one["values"].items():
            whole = values.setdefault(letter, [[None] * len(ranks) for _ in at])
            for second, numbers in zip(one["at"], rows, strict=True):
                for rank, number in zip(one["ranks"], numbers, strict=True):
                    whole[row[second]][column[rank]] = number
    told = Readings(ranks=ranks, at=at, values=values)
    if any(low):
        told["low"] = low
    return told


def parted(news: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
    """What ranks tell, as a frame has it: their activities, and what all have measured as one."""
    doing = [{k: v for k, v in one.items() if k != "meters"} for one in news if one["doing"]]
    measured = [one["meters"] for one in news if "meters" in one]
    parts: dict[str, list[Any]] = {"activities": doing}
    parts["meters"] = [joined(measured)] if measured else []
    return {name: some for name, some in parts.items() if some}
