"""``topk``: of each gradient the largest elements travel, the others wait until they are large."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import keras
import tensorflow as tf

from tnt_notebook.comm import codes, ops
from tnt_notebook.parallel.exchange import Exchange, ExchangeStep
from tnt_notebook.parallel.exchange.feedback import with_feedback

#: Elements below which a gradient travels whole.
SMALL = 256


@dataclass(frozen=True)
class TopK(Exchange):
    """Exchanges the elements of largest magnitude of each rank's gradients, as pairs of a place and
    a value; what is left out is added to the next gradient. Where the pairs of all ranks would be
    more than the whole, the sum is made of dense vectors.

    Attributes:
        ratio: of the elements, above 0 and at most 1.
    """

    gives_up: ClassVar[str] = "equality with one process: small elements of gradients come later"
    source: ClassVar[str] = (
        "Renggli et al., SparCML, SC'19; Lin et al., Deep gradient compression, 2018"
    )

    ratio: float = 0.01

    def __post_init__(self) -> None:
        if not 0 < self.ratio <= 1:
            raise ValueError(f"ratio is above 0 and at most 1, not {self.ratio}")

    def gradients(
        self, step: ExchangeStep, gradients: Sequence[Any], variables: Sequence[keras.Variable]
    ) -> list[Any]:
        return with_feedback(step, gradients, variables, _is_large, self._compressed)

    def _compressed(
        self, step: ExchangeStep, own: tf.Tensor, variable: keras.Variable
    ) -> tuple[tf.Tensor, tf.Tensor]:
        flat, size = tf.reshape(own, [-1]), math.prod(variable.shape)
        count = math.ceil(self.ratio * size)
        places = codes.largest(tf.cast(flat, tf.float32), count)
        values = tf.gather(flat, places)
        sent = tf.tensor_scatter_nd_update(tf.zeros_like(flat), places[:, None], values)
        left = tf.tensor_scatter_nd_update(flat, places[:, None], tf.zeros_like(values))
        label = f"of the largest {count} elements of the gradient of {variable.path}"
        # Every rank gets a pair from every other; of a dense sum twice the elements at most.
        if step.over.size * count * (4 + flat.dtype.size) >= 2 * size * flat.dtype.size:
            (total,) = ops.allreduce([sent], label=f"allreduce {label}", over=step.over)
        else:
            total = _sum_of_pairs(step, places, values, size, label)
        return tf.reshape(total, variable.shape), tf.reshape(left, variable.shape)


def _is_large(variable: keras.Variable) -> bool:
    return math.prod(variable.shape) >= SMALL


def _sum_of_pairs(
    step: ExchangeStep, places: tf.Tensor, values: tf.Tensor, size: int, label: str
) -> tf.Tensor:
    """In the order of the ranks, so that all have the same bits."""
    ranks, count = step.over.size, values.shape[0]
    all_places = ops.allgather(places, label=f"allgather {label}: places", over=step.over)
    all_values = ops.allgather(values, label=f"allgather {label}", over=step.over)

    def added(total: tf.Tensor, pairs: tuple[tf.Tensor, tf.Tensor]) -> tf.Tensor:
        of_rank, numbers = pairs
        return tf.tensor_scatter_nd_add(total, of_rank[:, None], numbers)

    pairs = tf.reshape(all_places, [ranks, count]), tf.reshape(all_values, [ranks, count])
    return tf.foldl(added, pairs, initializer=tf.zeros([size], values.dtype))
