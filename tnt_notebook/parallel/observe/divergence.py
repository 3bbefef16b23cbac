"""A loss that has become NaN: since when, found without waiting for a device in every step."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Mapping
from typing import Any

from tnt_notebook.telemetry.pace import FRAME_S

#: Steps that are kept until the next look: of more, the first is not known to the step.
_MOST_STEPS = 4096


class Divergence:
    """Of a fit on rank 0, which has the logs of the global batch.

    Args:
        late: whether logs are those of some steps ago.

    Attributes:
        since: epoch and step, counted from 1, in which a loss was NaN first; None: in none so far.
        loss: which one that is.
    """

    def __init__(self, late: bool = False) -> None:
        self._late = late
        self.since: tuple[int, int] | None = None
        self.loss = ""
        self._steps: deque[tuple[int, int, Mapping[str, Any]]] = deque(maxlen=_MOST_STEPS)
        self._look_at = 0.0

    def step(self, epoch: int, step: int, logs: Mapping[str, Any]) -> None:
        """A step has ended with these logs."""
        if self.since is not None:
            return
        losses = {n: v for n, v in logs.items() if n == "loss" or n.endswith("_loss")}
        self._steps.append((epoch, step, losses))
        if time.monotonic() >= self._look_at:
            self.look()
            self._look_at = time.monotonic() + FRAME_S

    def look(self) -> None:
        """Looks at the steps since the last look. A loss is the mean of an epoch so far: once it is
        NaN it stays so to the end of the epoch."""
        if not self._steps or not _first_nan(self._steps[-1][2]):
            self._steps.clear()
            return
        epoch = self._steps[-1][0]
        steps = [one for one in self._steps if one[0] == epoch]
        first = next(one for one in steps if _first_nan(one[2]))
        self.since, self.loss = first[:2], _first_nan(first[2])
        self._steps.clear()

    def words(self, stops: bool) -> str:
        """What is said of it; "" where no loss is NaN.

        Args:
            stops: whether training ends for it.
        """
        if self.since is None:
            return ""
        epoch, step = self.since
        what = (
            f"{self.loss} is NaN since step {step} of epoch {epoch}"
            f"{' or some steps before' if self._late else ''}: the learning rate may be too "
            "high, or a sample hold NaN, or something be divided by zero."
        )
        return (
            f"{what} Training was stopped; --on-nan go-on (in scripts on_nan='go-on') continues."
            if stops
            else what
        )


def _first_nan(losses: Mapping[str, Any]) -> str:
    return next((name for name, value in losses.items() if math.isnan(float(value))), "")
