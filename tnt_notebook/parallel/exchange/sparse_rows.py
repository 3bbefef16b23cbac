"""Gradients of some rows of a weight, as those of an Embedding are.

Keras's optimizers square each slice alone, so it matters whether slices of the same row were summed
before. TensorFlow leaves those of an Embedding as they are, and sums those of a sparse input; and a
lookup by positions has each row once, whatever the samples are. What ranks and micro-batches put
together is to be as it would be of the whole batch.
"""

from __future__ import annotations

import numpy as np
import tensorflow as tf


def are_distinct(gradient: tf.IndexedSlices) -> bool:
    """Whether each row comes once only, as the graph says."""
    if tf.executing_eagerly():
        return False
    op = gradient.indices.op
    while op.type in ("Cast", "Identity", "Reshape", "ExpandDims") or _counts_from_end(op):
        op = op.inputs[-1 if op.type == "SelectV2" else 0].op
    if op.type == "Const":
        rows = tf.get_static_value(op.outputs[0])
        return bool(rows.min(initial=0) >= 0 and len(np.unique(rows)) == rows.size)
    if op.type == "Range":
        first, _, step = map(tf.get_static_value, op.inputs)
        return first is not None and step is not None and first >= 0 and step > 0
    return str(op.type) == "Unique"


def _counts_from_end(op: tf.Operation) -> bool:
    """Whether an op is where Keras counts negative rows from the end: no others are changed."""
    if op.type != "SelectV2" or op.inputs[0].op.type != "Less":
        return False
    rows, zero = op.inputs[0].op.inputs
    return rows is op.inputs[2] and bool(np.all(tf.get_static_value(zero) == 0))


def summed_by_row(gradient: tf.IndexedSlices) -> tf.IndexedSlices:
    """The same, in which each row comes once only."""
    rows, places = tf.unique(gradient.indices)
    values = tf.math.unsorted_segment_sum(gradient.values, places, tf.size(rows))
    return tf.IndexedSlices(values, rows, gradient.dense_shape)
