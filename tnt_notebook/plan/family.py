"""What a family of schedules is: how one of them is made, and what holds for all of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tnt_notebook.errors import ScheduleError
from tnt_notebook.plan.schedule import Schedule

#: Makes a schedule of so many ranks, micro-batches, and stages a rank.
Maker = Callable[[int, int, int], Schedule]


@dataclass(frozen=True)
class Family:
    """A schedule for any number of ranks and micro-batches.

    Formulas as people write them have p ranks, m micro-batches and v stages a rank; F, I and W are
    the times of a rank's forward, input gradient and weight gradient of one micro-batch, all its
    stages together, and B = I + W.

    Attributes:
        name: what a person writes.
        make: from ranks, micro-batches, and stages a rank.
        description: one line.
        idle: seconds that a rank is idle in a step, of (ranks, F, I, W, stages a rank).
        idle_formula: the same, as people write it.
        held: how many pairs of stage and micro-batch a rank holds at most, of (rank, ranks,
            micro-batches, stages a rank); never more than there are.
        held_formula: in words, of the rank that holds most.
        source: who published it.
        stages_per_rank: unless a person asks for another number.
        any_stages: whether there may be another number.
        exact: whether ``idle`` is exact where F = I = W, of (ranks, micro-batches, stages a rank);
            elsewhere it is the least.
    """

    name: str
    make: Maker
    description: str
    idle: Callable[[int, float, float, float, int], float]
    idle_formula: str
    held: Callable[[int, int, int, int], int]
    held_formula: str
    source: str
    stages_per_rank: int = 1
    any_stages: bool = False
    exact: Callable[[int, int, int], bool] = lambda p, m, v: True

    def stages(self, wanted: int | None) -> int:
        """Stages a rank: the usual number where none is wanted. Raises ScheduleError if this
        schedule cannot have so many."""
        usual = self.stages_per_rank
        if wanted is None or wanted == usual:
            return usual
        if wanted < 1:
            raise ScheduleError(f"A rank has at least one stage, not {wanted}.")
        if not self.any_stages:
            raise ScheduleError(
                f"Schedule {self.name} has {usual} stage{'s' * (usual > 1)} a rank, not {wanted}."
            )
        return wanted
