"""A loss that has become NaN: since when, found without waiting for a device in every step."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import keras
import tensorflow as tf

from tnt_notebook.telemetry.pace import FRAME_S

#: Steps that are kept until the next look: of more, the first is not known to the step.
_MOST_STEPS = 4096


class Divergence:
    """Of a fit on rank 0, which has the logs of the global batch.

    Args:
        late: whether logs are those of some steps ago.
        weights: those that are trained, as far as they are here.

    Attributes:
        since: epoch and step, counted from 1, in which a loss was NaN first; None: in none so far.
        loss: which one that is.
        is_final: whether weights are NaN or infinite, too, so that no later step can be better: a
            batch whose samples all lack what the loss is of has a loss of 0/0, and changes nothing.
    """

    def __init__(
        self, late: bool = False, weights: Callable[[], Iterable[keras.Variable]] = tuple
    ) -> None:
        self._late, self._weights = late, weights
        self.is_final = False
        self.since: tuple[int, int] | None = None
        self.loss = ""
        self._steps: deque[tuple[int, int, Mapping[str, Any]]] = deque(maxlen=_MOST_STEPS)
        self._look_at = 0.0

    def step(self, epoch: int, step: int, logs: Mapping[str, Any]) -> None:
        """A step has ended with these logs."""
        losses = {n: v for n, v in logs.items() if n == "loss" or n.endswith("_loss")}
        self._steps.append((epoch, step, losses))
        if time.monotonic() >= self._look_at:
            self.look()
            self._look_at = time.monotonic() + FRAME_S

    def look(self, ends_epoch: bool = False) -> None:
        """Looks at the steps since the last look. A loss is the mean of an epoch so far: once it is
        NaN it stays so to the end of the epoch.

        Args:
            ends_epoch: whether these are the last ones of an epoch.
        """
        steps = [*self._steps]
        self._steps.clear()
        if not steps or not _first_nan(steps[-1][2]) or self.is_final:
            return
        if self.since is None:
            of_epoch = (one for one in steps if one[0] == steps[-1][0] and _first_nan(one[2]))
            epoch, step, losses = next(of_epoch)
            self.since, self.loss = (epoch, step), _first_nan(losses)
        elif not ends_epoch:
            return  # weights are looked at when a loss is NaN first, and then once an epoch
        self.is_final = not all(map(_is_finite, self._weights()))

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


def _is_finite(variable: keras.Variable) -> bool:
    value = variable.value
    return not value.dtype.is_floating or bool(tf.reduce_all(tf.math.is_finite(value)))


def _first_nan(losses: Mapping[str, Any]) -> str:
    return next((name for name, value in losses.items() if math.isnan(float(value))), "")
