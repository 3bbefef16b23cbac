"""Looks at where the time of steps goes on all ranks, now and then while a model trains.

Rank 0 has the clock: that it wants to look travels with the metrics of a step, so that all ranks
look after the same one.
"""

from __future__ import annotations

import numpy as np

from tnt_notebook.comm import World
from tnt_notebook.telemetry.breakdown import NOTHING, Breakdown, mean, of_steps


class Looks:
    """Of one call of fit.

    Args:
        gradients_from: see :func:`~tnt_notebook.telemetry.breakdown.of_steps`.
    """

    def __init__(self, over: World, gradients_from: int) -> None:
        self._over, self._gradients_from = over, gradients_from
        self._begin = self._seen = over.traced()

    def latest(self) -> list[Breakdown]:
        """The mean step of each rank since the last look; of none, zeros. Collective."""
        return self._since(self._seen)

    def whole(self) -> list[Breakdown]:
        """The mean step of each rank, as far back as the trace goes. Collective."""
        return self._since(self._begin)

    def _since(self, count: int) -> list[Breakdown]:
        self._seen = self._over.traced()
        events = self._over.trace(count)
        forgotten = len(events) < self._seen - count
        steps = of_steps(events, gradients_from=self._gradients_from, forgotten=forgotten)
        if count == self._begin and not forgotten:
            del steps[:1]  # it was traced, which takes long and tells nothing
        own = np.array([mean(steps or [NOTHING])], np.float64)
        return [Breakdown(*map(float, row)) for row in self._over.allgather(own)]
