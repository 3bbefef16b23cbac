"""Softmax of classes that ranks divide among them (vocabulary parallelism in Shoeybi et al.,
Megatron-LM, 2019).

Each rank has some of the classes; the largest of all, and the sum of their powers, are exchanged:
one number for each row of classes.
"""

from __future__ import annotations

from collections.abc import Sequence

import tensorflow as tf

from tnt_notebook.comm import Communicator, ops
from tnt_notebook.keras.tensorflow import wide
from tnt_notebook.parallel.layers.moves import shared, total
from tnt_notebook.telemetry.exchanges import Purpose


def softmax(
    x: tf.Tensor, dims: Sequence[int], over: Communicator, label: str, log: bool = False
) -> tf.Tensor:
    """Of this rank's block, what it is in the softmax of the whole.

    Args:
        dims: that the softmax is over.
        over: the ranks that have the other blocks of these.
        log: whether its logarithm is wanted.
    """
    logits = tf.cast(x, wide(x.dtype))
    largest = _largest(logits, dims, over, label)
    away = logits - largest
    if log:
        return tf.cast(away - tf.math.log(_sum_of_powers(away, dims, over, label)), x.dtype)
    powers = tf.exp(away)
    return tf.cast(powers / _sum_of_powers(away, dims, over, label), x.dtype)


def _largest(x: tf.Tensor, dims: Sequence[int], over: Communicator, label: str) -> tf.Tensor:
    here = tf.stop_gradient(tf.reduce_max(x, axis=dims, keepdims=True))
    (found,) = ops.allreduce(
        [here], reduction="max", label=f"largest of {label}", over=over, purpose=Purpose.CONVERSION
    )
    found.set_shape(here.shape)
    return tf.stop_gradient(found)


def _sum_of_powers(
    away: tf.Tensor, dims: Sequence[int], over: Communicator, label: str
) -> tf.Tensor:
    """What all ranks divide by, each for its block."""
    here = tf.reduce_sum(tf.exp(away), axis=dims, keepdims=True)
    return shared(total(here, over, label), over, label)
