"""A fit of a cell as a study of scaling wants it: with larger batches, or of fewer steps."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import keras
import numpy as np

from tnt_notebook.errors import ModelError

_KERAS_BATCH = 32  # where a fit says none


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
        if larger == smaller or not _is_of_arrays(x):
            return given
        size = given or _KERAS_BATCH
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


def _is_of_arrays(x: Any) -> bool:
    """Whether Keras makes the batches: of arrays, tensors, tables and lists of numbers."""
    if isinstance(x, (keras.utils.PyDataset, Iterator)):
        return False
    leaves = keras.tree.flatten(x)
    return bool(leaves) and all(hasattr(one, "shape") or np.isscalar(one) for one in leaves)
