"""``tnt.ops``: what a training step of one's own says to see the samples of all ranks.

Where ranks run a step together it needs none of this: the step sees all samples, and these are the
plain functions of TensorFlow, as on one process and outside of training. Where each rank trains on
its slice (see "What is promised"), a step that looks at the batch as a whole, such as a contrastive
loss against all other samples, would see the slice of its rank only. These functions give it the
whole, with gradients that are those of one process::

    def train_step(self, data):
        with tf.GradientTape() as tape:
            z = self(data)
            similarity = z @ tf.transpose(tnt.ops.allgather(z))     # of mine to those of all
            ...

They are for the ``train_step``, ``test_step`` and losses of models that every rank has whole; in a
pipeline they raise a ModelError.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from tnt_notebook.parallel import whole_batch
from tnt_notebook.parallel.step import current_step

__all__ = ["allgather", "allreduce", "first_sample", "reduce_mean"]


def allgather(values: Any) -> tf.Tensor:
    """The rows of all ranks, in the order of the global batch.

    Args:
        values: this rank's, a row a sample: of any shape but a scalar's.

    Returns:
        A tensor with as many rows as the global batch has samples.
    """
    values, step = tf.convert_to_tensor(values), current_step()
    return values if step is None else whole_batch.gather(step, values)


def allreduce(values: Any) -> tf.Tensor:
    """The sum over ranks, for instance of what was summed over this rank's samples.

    Args:
        values: of one shape on all ranks.
    """
    values, step = tf.convert_to_tensor(values), current_step()
    return values if step is None else whole_batch.total(step, values)


def reduce_mean(values: Any) -> tf.Tensor:
    """The mean over all samples of the global batch, along the first axis.

    Args:
        values: floats, a row a sample.
    """
    values, step = tf.convert_to_tensor(values), current_step()
    if step is None:
        return tf.reduce_mean(values, 0)
    own = tf.reduce_sum(values[: tf.cast(step.share.local, tf.int32)], 0)
    return whole_batch.total(step, own) / tf.cast(step.share.total, own.dtype)


def first_sample() -> tf.Tensor | int:
    """Where this rank's samples begin in the global batch: the row of its first one in what
    :func:`allgather` gives."""
    step = current_step()
    return 0 if step is None else step.begin
