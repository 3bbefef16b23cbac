"""``tnt.ops``: what a training step of one's own may say to see the samples of all ranks.

It need not: where ranks run a step together the step sees all samples, and these are the plain
functions of TensorFlow, as on one process and outside of training. Where an exchange lets each rank
train on its slice (see "What is promised"), they are of that slice.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf

__all__ = ["allgather", "allreduce", "first_sample", "reduce_mean"]


def allgather(values: Any) -> tf.Tensor:
    """The rows of all samples, in the order of the global batch.

    Args:
        values: a row a sample: of any shape but a scalar's.
    """
    return tf.convert_to_tensor(values)


def allreduce(values: Any) -> tf.Tensor:
    """The sum over ranks, for instance of what was summed over samples.

    Args:
        values: of any shape.
    """
    return tf.convert_to_tensor(values)


def reduce_mean(values: Any) -> tf.Tensor:
    """The mean over all samples of the global batch, along the first axis.

    Args:
        values: floats, a row a sample.
    """
    return tf.reduce_mean(tf.convert_to_tensor(values), 0)


def first_sample() -> int:
    """The row of this rank's first sample in what :func:`allgather` gives."""
    return 0
