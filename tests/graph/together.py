"""Runs a function on one rank with all samples, and on all ranks with their own: on the ranks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tnt_notebook.comm import ops, world
from tnt_notebook.parallel.graph.emission import Here
from tnt_notebook.parallel.graph.layouts import Rows
from tnt_notebook.parallel.graph.step import Given, run_together


def uneven(seed: int, rows: int, size: int) -> list[int]:
    """Where the samples of each rank begin; some ranks have none."""
    cuts = np.random.default_rng(seed).integers(0, rows + 1, size - 1)
    return [0, *sorted(cuts.tolist()), rows]


def borrowed(batch: np.ndarray) -> np.ndarray:
    """What a rank without samples computes, which must not count: where it can be, no numbers."""
    return np.full_like(batch[:1], np.nan) if batch.dtype.kind == "f" else batch[:1]


class OnAllRanks:
    """A function of batches that ranks run together, traced once.

    Args:
        function: of the tensors of a batch, each with samples along its first dimension.
        specs: theirs, with sizes of batches left open.
    """

    def __init__(self, function: Callable[..., Any], specs: Sequence[tf.TensorSpec]) -> None:
        self._traced = tf.function(function, autograph=False).get_concrete_function(*specs)
        self.without_rule: list[str] = []
        here = tf.TensorSpec((3,), tf.int64)

        @tf.function(autograph=False, input_signature=[*specs, here])
        def together(*given: tf.Tensor) -> Any:
            *batch, numbers = given
            given = [Given(each, Rows(0)) for each in batch]
            with ops.channels():
                result, _, decisions = run_together(
                    self._traced, given, Here.of(*tf.unstack(numbers)), world()
                )
            self.without_rule = [each.op.type for each in decisions if not each.has_rule]
            return result

        self._together = together

    def operations(self) -> list[tf.Operation]:
        """Of the graph that ranks run."""
        found: list[tf.Operation] = self._together.get_concrete_function().graph.get_operations()
        return found

    def alone(self, batch: Sequence[np.ndarray]) -> Any:
        """What one process gives."""
        return self._traced(*map(tf.constant, batch))

    def together(self, batch: Sequence[np.ndarray], cuts: Sequence[int]) -> Any:
        """What ranks give of whom each has the samples between two of the cuts."""
        begin, end = cuts[world().rank : world().rank + 2]
        here = tf.constant([begin, end - begin, cuts[-1]], tf.int64)
        given = [each[begin:end] if end > begin else borrowed(each) for each in batch]
        return self._together(*map(tf.constant, given), here)
