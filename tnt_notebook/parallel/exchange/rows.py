"""Gradients of some rows of a weight, as those of an Embedding are.

Keras's optimizers square each slice alone, so it matters whether slices of the same row were summed
before. TensorFlow leaves those of an Embedding as they are, and sums those of a sparse input: what
ranks and micro-batches put together is to be as it would be of the whole batch.
"""

from __future__ import annotations

import tensorflow as tf


def are_distinct(gradient: tf.IndexedSlices) -> bool:
    """Whether each row comes once only, as the graph says."""
    if tf.executing_eagerly():
        return False
    op = gradient.indices.op
    while op.type in ("Cast", "Identity", "Reshape"):
        op = op.inputs[0].op
    return str(op.type) == "Unique"


def summed_by_row(gradient: tf.IndexedSlices) -> tf.IndexedSlices:
    """The same, in which each row comes once only."""
    rows, places = tf.unique(gradient.indices)
    values = tf.math.unsorted_segment_sum(gradient.values, places, tf.size(rows))
    return tf.IndexedSlices(values, rows, gradient.dense_shape)
