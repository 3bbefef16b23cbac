"""A fit of a cell as a study of scaling wants it: with larger batches, or of fewer steps."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

from tnt_notebook.errors import ModelError
from tnt_notebook.parallel.data.batch_size import KERAS_BATCH, is_of_arrays


class Length(NamedTuple):
    """How long a fit is, as Keras has it."""

    epochs: int
    steps_per_epoch: int | None


@dataclass(frozen=True)
class FitAs:
    """What to change about each fit of a cell.

    Attributes:
        batches: ``(a, b)``: batches of arrays become a/b times as large. A dataset makes its own.
        steps: how many steps to train; None: as many as the cell says.
    """

    batches: tuple[int, int] = (1, 1)
    steps: int | None = None

    def batch_size(self, x: Any, given: int | None) -> int | None:
        """That of the global batch.

        Args:
            x: what the fit is given; a dataset has batches already.
            given: what the fit says.

        Raises:
            ModelError: it would be no whole number of samples.
        """
        larger, smaller = self.batches
        if larger == smaller or not is_of_arrays(x):
            return given
        size = given or KERAS_BATCH
        if size * larger % smaller:
            raise ModelError(
                f"A batch of {size} samples cannot become {larger}/{smaller} times as large: let "
                f"batch_size be a multiple of {smaller}, or measure other numbers of ranks."
            )
        return size * larger // smaller

    def length(
        self, epochs: int, initial_epoch: int, steps_per_epoch: int | None, steps: int | None
    ) -> Length:
        """How long it is to be.

        Args:
            epochs, initial_epoch, steps_per_epoch: what the fit says.
            steps: of an epoch; None: not known.
        """
        if self.steps is None:
            return Length(epochs, steps_per_epoch)
        if steps is None or steps > self.steps:
            return Length(initial_epoch + 1, self.steps)
        return Length(initial_epoch + math.ceil(self.steps / steps), steps_per_epoch)
