"""What a sweep is to find: settings with their values, and what trials are judged by."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any

from tnt_notebook.errors import SweepError

#: How settings are chosen.
SAMPLERS = {
    "tpe": "near those that were good so far (tree-structured Parzen estimator)",
    "random": "by chance",
    "grid": "all combinations, in order",
    "cmaes": "from a normal distribution that moves to the best (CMA-ES); numbers only",
}

#: Which trials end early.
PRUNERS = {
    "none": "none",
    "median": "those below the median of the others at the same epoch",
    "hyperband": "all but the best third, again and again, in several brackets (Hyperband)",
    "halving": "all but the best quarter, again and again (successive halving)",
}

#: A grid is written down.
MOST_POINTS = 100_000


@dataclass(frozen=True)
class Range:
    """Numbers from low to high, both included; whole ones where both ends are.

    Attributes:
        log: whether each decade is as likely as any other.
        step: between two values; None: any value.
    """

    low: float
    high: float
    log: bool = False
    step: float | None = None

    def __str__(self) -> str:
        if self.log:
            return f"log({self.low},{self.high})"
        return f"{self.low}..{self.high}" + (f":{self.step}" if self.step is not None else "")

    @property
    def is_whole(self) -> bool:
        """Whether it is of whole numbers."""
        return all(isinstance(n, int) for n in (self.low, self.high, self.step or 1))

    def values(self) -> list[float] | None:
        """All of them, where they can be counted."""
        step = self.step or (1 if self.is_whole and not self.log else None)
        if step is None:
            return None
        if self.is_whole:
            return [*range(int(self.low), int(self.high) + 1, int(step))][: MOST_POINTS + 1]
        # As they are written: 3 * 0.1 would be 0.30000000000000004.
        low, high, each = (Decimal(str(n)) for n in (self.low, self.high, step))
        count = min(int((high - low) // each), MOST_POINTS)
        return [float(low + i * each) for i in range(count + 1)]


@dataclass(frozen=True)
class Choice:
    """One of some values: numbers, texts, True, False, None."""

    options: tuple[Any, ...]

    def __str__(self) -> str:
        return "|".join(map(str, self.options))

    def values(self) -> list[Any]:
        """All of them."""
        return list(self.options)


Setting = Range | Choice


@dataclass(frozen=True)
class Objective:
    """What trials are judged by.

    Attributes:
        name: of a metric in the history of the cell's last fit; of an expression, what it is
            called.
        maximise: whether more is better.
        best: whether the best epoch counts, and not the last.
        expression: of the cell's names, when it has run, instead of the history.
    """

    name: str
    maximise: bool
    best: bool = False
    expression: str | None = None

    def __str__(self) -> str:
        said = f"--objective {self.name}:{'max' if self.maximise else 'min'}"
        if self.expression is not None:
            return f"{said} --value {self.expression!r}"
        return f"{said} --epoch best" if self.best else said

    def of(self, values: list[float]) -> float:
        """Of a fit, from the values of its epochs; at least one."""
        if not self.best:
            return values[-1]
        finite = [value for value in values if math.isfinite(value)] or values
        return max(finite) if self.maximise else min(finite)


@dataclass(frozen=True)
class Task:
    """A sweep, as it was asked for.

    Attributes:
        trials: how many, with those that a file holds.
        each: ranks of a trial.
        sampler, pruner: names in :data:`SAMPLERS` and :data:`PRUNERS`.
        seed: of the sampler.
        timeout_s: seconds after which the sweep ends.
        file: where the study is kept; None: in memory.
        options: of the fits of each trial, those of ``%%tnt_fit``. The folder of its checkpoints is
            one in that which is given.
    """

    space: Mapping[str, Setting]
    objective: Objective
    trials: int
    each: int = 1
    sampler: str = "tpe"
    pruner: str = "none"
    seed: int | None = None
    timeout_s: float | None = None
    file: Path | None = None
    options: Mapping[str, Any] = field(default_factory=dict)

    def check(self) -> None:
        """Refuses what cannot be.

        Raises:
            SweepError: sampler or pruner cannot work with this.
        """
        if self.sampler == "cmaes":
            if chosen := [n for n, setting in self.space.items() if isinstance(setting, Choice)]:
                raise SweepError(
                    f"cmaes takes numbers only, and {', '.join(chosen)} is a choice: give a range, "
                    "as 64..256, or take another sampler."
                )
            if len(self.space) < 2:
                raise SweepError("cmaes needs two settings at least: take another sampler.")
        if self.sampler == "grid":
            endless = [name for name, setting in self.space.items() if setting.values() is None]
            if endless:
                raise SweepError(
                    f"grid tries all values, and {', '.join(endless)} has no end of them: give a "
                    "step, as 0..0.5:0.1, or choices, as 0.1|0.2."
                )
            if self.points() > MOST_POINTS:
                raise SweepError(f"A grid of {self.points():,} points is too large for grid.")
        if self.objective.expression is not None and self.pruner != "none":
            raise SweepError(
                "A pruner needs the objective after every epoch, and --value is known at the end: "
                "leave one of them out."
            )

    def points(self) -> int:
        """How many combinations a grid has."""
        return math.prod(len(setting.values() or ()) for setting in self.space.values())

    def grid(self) -> Iterator[dict[str, Any]]:
        """All combinations, the last setting first to change."""
        values = [setting.values() or [] for setting in self.space.values()]
        for combination in itertools.product(*values):
            yield dict(zip(self.space, combination, strict=True))
