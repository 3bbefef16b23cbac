"""Softmax of classes that ranks divide among them, and what is made of it: crossentropies and which
class is the likeliest (vocabulary parallelism in Shoeybi et al., Megatron-LM, 2019).

Each rank has some of the classes; the largest of all, and the sum of their powers, are exchanged:
one number for each row of classes.
"""

from __future__ import annotations

from collections.abc import Sequence

import tensorflow as tf

from tnt_notebook.comm import Communicator, ops
from tnt_notebook.parallel.layers.boxes import Range
from tnt_notebook.parallel.layers.moves import shared, total


def softmax(
    x: tf.Tensor, dims: Sequence[int], over: Communicator, label: str, log: bool = False
) -> tf.Tensor:
    """Of this rank's block, what it is in the softmax of the whole.

    Args:
        dims: that the softmax is over.
        over: the ranks that have the other blocks of these.
        log: whether its logarithm is wanted.
    """
    logits = tf.cast(x, tf.float32) if x.dtype in (tf.float16, tf.bfloat16) else x
    largest = _largest(logits, dims, over, label)
    away = logits - largest
    if log:
        return tf.cast(away - tf.math.log(_sum_of_powers(away, dims, over, label)), x.dtype)
    powers = tf.exp(away)
    return tf.cast(powers / _sum_of_powers(away, dims, over, label), x.dtype)


def crossentropy(labels: tf.Tensor, logits: tf.Tensor, over: Communicator, label: str) -> tf.Tensor:
    """Of logits, over the last dimension; the same on all ranks.

    Args:
        labels: how likely each class of this rank's block is.
        over: the ranks that have the other blocks.
    """
    away = -softmax(logits, [len(logits.shape) - 1], over, label, log=True)
    return total(tf.reduce_sum(labels * away, axis=-1), over, label)


def of_block(labels: tf.Tensor, rows: Range, classes: int, dtype: tf.DType) -> tf.Tensor:
    """Labels that are numbers of classes, as a block of zeros and ones.

    Args:
        rows: the classes of the block.
        classes: how many there are in all.
    """
    labels = tf.cast(labels, tf.int64)
    text = f"A label is no number of one of {classes} classes"
    within = tf.reduce_all(tf.logical_and(labels >= 0, labels < classes))
    with tf.control_dependencies([tf.debugging.Assert(within, [text])]):
        return tf.one_hot(labels - rows[0], rows[1] - rows[0], dtype=dtype)


def likeliest(x: tf.Tensor, first: int, over: Communicator, label: str) -> tf.Tensor:
    """The number of the largest along the last dimension, the first of several; int64.

    Args:
        first: the number of the first class of this rank's block.
    """
    largest = _largest(x, [len(x.shape) - 1], over, label)
    own = tf.argmax(x, axis=-1) + first
    here = tf.reduce_max(x, axis=-1) >= tf.squeeze(largest, -1)
    numbers = tf.where(here, own, own.dtype.max)
    (found,) = ops.allreduce([numbers], reduction="min", label=f"likeliest: {label}", over=over)
    found.set_shape(own.shape)
    return found


def _largest(x: tf.Tensor, dims: Sequence[int], over: Communicator, label: str) -> tf.Tensor:
    here = tf.stop_gradient(tf.reduce_max(x, axis=dims, keepdims=True))
    (found,) = ops.allreduce([here], reduction="max", label=f"largest: {label}", over=over)
    found.set_shape(here.shape)
    return tf.stop_gradient(found)


def _sum_of_powers(
    away: tf.Tensor, dims: Sequence[int], over: Communicator, label: str
) -> tf.Tensor:
    """What all ranks divide by, each for its block."""
    here = tf.reduce_sum(tf.exp(away), axis=dims, keepdims=True)
    return shared(total(here, over, label), over, label)
