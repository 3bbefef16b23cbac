"""A sweep as it is shown: a row for each trial, and the axes between which it is drawn."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from tnt_notebook.sweep.space import Choice, Objective, Setting

#: ``stopped``: by a person, who had seen enough; ``cut off``: by the end of the sweep.
TrialState = Literal["running", "complete", "pruned", "stopped", "cut off", "failed"]


@dataclass(frozen=True)
class Row:
    """A trial.

    Attributes:
        number: counts from 0, as Optuna does.
        epoch, epochs: so far, and in all; 0 as long as that is not known.
        value: of the objective, so far or at the end.
        step_s: seconds of the median step.
        seconds: since it began, so far or in all.
        error: why it failed.
    """

    number: int
    settings: Mapping[str, Any]
    state: TrialState
    ranks: Sequence[int] = ()
    epoch: int = 0
    epochs: int = 0
    value: float | None = None
    step_s: float | None = None
    seconds: float = 0.0
    error: str = ""


@dataclass(frozen=True)
class Board:
    """All trials that were begun, in order.

    Attributes:
        state: of the sweep: ``starting``, ``running``, ``stopping``, ``finished``, ``stopped`` or
            ``failed``.
        wanted: how many trials are to be run.
        notes: what else there is to say, a line each.
        error: why it failed.
        seconds: since it began.
    """

    title: str
    state: str
    objective: Objective
    space: Mapping[str, Setting]
    wanted: int
    rows: Sequence[Row] = ()
    notes: Sequence[str] = ()
    error: str = ""
    seconds: float = 0.0

    @property
    def best(self) -> Row | None:
        """The best trial that has come to its end."""
        done = [row for row in self.rows if row.state == "complete" and row.value is not None]
        return min(done, key=self._order, default=None)

    def _order(self, row: Row) -> float:
        assert row.value is not None
        return -row.value if self.objective.maximise else row.value

    def count(self, state: TrialState) -> int:
        """How many trials are in a state."""
        return sum(row.state == state for row in self.rows)

    def shown(self, most: int) -> list[Row]:
        """Of very many trials those that run, the best, and the latest; in order."""
        if len(self.rows) <= most:
            return list(self.rows)
        valued = [r for r in self.rows if r.value is not None and r.state == "complete"]
        chosen = [
            *(row for row in self.rows if row.state == "running"),
            *sorted(valued, key=self._order)[: most // 3],
            *reversed(self.rows),
        ]
        numbers = dict.fromkeys(row.number for row in chosen)
        kept = {*list(numbers)[:most]}
        return [row for row in self.rows if row.number in kept]


@dataclass(frozen=True)
class Axis:
    """Of parallel coordinates: a setting, or the objective.

    Attributes:
        ticks: places from 0 to 1, and what stands there.
        log: whether its values are drawn by their logarithms.
        options: of a choice.
    """

    name: str
    ticks: Sequence[tuple[float, Any]]
    low: float = 0.0
    high: float = 1.0
    log: bool = False
    options: Sequence[Any] = field(default=())

    def place(self, value: Any) -> float | None:
        """Where a value lies, from 0 to 1; None where it lies nowhere."""
        if self.options:
            if value not in self.options:
                return None
            return self.options.index(value) / max(1, len(self.options) - 1)
        if value is None or not math.isfinite(value):
            return None
        low, high = (math.log(n) if self.log else n for n in (self.low, self.high))
        at = math.log(value) if self.log else value
        return 0.5 if high == low else (at - low) / (high - low)


def axes_of(board: Board) -> list[Axis]:
    """One for each setting, and that of the objective."""
    found = [_axis(name, setting) for name, setting in board.space.items()]
    values = [row.value for row in board.rows if row.value is not None and math.isfinite(row.value)]
    low, high = min(values, default=0.0), max(values, default=1.0)
    ends = [(0.0, low), (1.0, high)] if low < high else [(0.5, low)]
    return [*found, Axis(board.objective.name, ends if values else [], low, high)]


def _axis(name: str, setting: Setting) -> Axis:
    if isinstance(setting, Choice):
        last = max(1, len(setting.options) - 1)
        ticks = [(i / last, option) for i, option in enumerate(setting.options)]
        return Axis(name, ticks, options=setting.options)
    ends = ((0.0, setting.low), (1.0, setting.high))
    return Axis(name, ends, setting.low, setting.high, setting.log)
