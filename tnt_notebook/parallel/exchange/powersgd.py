"""``powersgd``: gradients of matrices travel as products of two thin ones."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import keras
import numpy as np
import tensorflow as tf

from tnt_notebook.comm import ops
from tnt_notebook.parallel.exchange import Exchange, ExchangeStep
from tnt_notebook.parallel.exchange.feedback import with_feedback


@dataclass(frozen=True)
class PowerSgd(Exchange):
    """Exchanges the best approximation of each gradient by a matrix of low rank, found by one step
    of power iteration from that of the step before; what it leaves out is added to the next
    gradient. A kernel is a matrix with its outputs as columns. What has less numbers whole, such as
    a bias, travels whole.

    Attributes:
        rank: of the approximations, 1 or more.
    """

    gives_up: ClassVar[str] = "equality with one process: gradients are approximated"
    source: ClassVar[str] = "Vogels et al., PowerSGD, NeurIPS 2019, algorithm 1"

    rank: int = 2

    def __post_init__(self) -> None:
        if self.rank < 1:
            raise ValueError(f"rank must be at least 1, not {self.rank}")

    def gradients(
        self, step: ExchangeStep, gradients: Sequence[Any], variables: Sequence[keras.Variable]
    ) -> list[Any]:
        return with_feedback(step, gradients, variables, self._is_matrix, self._compressed)

    def _is_matrix(self, variable: keras.Variable) -> bool:
        rows, columns = _as_matrix(variable)
        return self.rank * (rows + columns) < rows * columns

    def _compressed(
        self, step: ExchangeStep, own: tf.Tensor, variable: keras.Variable
    ) -> tuple[tf.Tensor, tf.Tensor]:
        rows, columns = _as_matrix(variable)
        matrix = tf.reshape(own, [rows, columns])

        def start() -> np.ndarray:  # any does that is the same on all ranks
            return np.random.default_rng(columns).standard_normal((columns, self.rank))

        right = step.keep(
            "right", variable, tf.zeros([columns, self.rank], own.dtype), initial=start
        )
        about = f"of the gradient of {variable.path}"
        (left,) = ops.allreduce(
            [matrix @ right.read_value()], label=f"allreduce {about}, left factor", over=step.over
        )
        basis, _ = tf.linalg.qr(left)
        mine = tf.matmul(matrix, basis, transpose_a=True)
        (total,) = ops.allreduce([mine], label=f"allreduce {about}, right factor", over=step.over)
        right.assign(total)
        found = tf.matmul(basis, total, transpose_b=True)
        missed = matrix - tf.matmul(basis, mine, transpose_b=True)
        return tf.reshape(found, variable.shape), tf.reshape(missed, variable.shape)


def _as_matrix(variable: keras.Variable) -> tuple[int, int]:
    columns = variable.shape[-1] if variable.shape else 1
    return math.prod(variable.shape) // max(1, columns), columns
