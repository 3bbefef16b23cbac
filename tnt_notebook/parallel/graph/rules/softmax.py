"""Softmax of classes that ranks divide among them, crossentropies, and which class is the likeliest
(vocabulary parallelism in Shoeybi et al., "Megatron-LM", 2019).

What ranks tell each other is one number for each row of classes: the largest, and the sum of
powers.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from tnt_notebook.keras.tensorflow import wide
from tnt_notebook.parallel.graph.counts import ONE
from tnt_notebook.parallel.graph.layouts import PART, SAME, Layout, Rows
from tnt_notebook.parallel.graph.node import Decision, Node
from tnt_notebook.parallel.graph.rules.images import along_the_first
from tnt_notebook.parallel.graph.rules.reductions import without
from tnt_notebook.parallel.graph.rules.sequences import along_the_last
from tnt_notebook.parallel.graph.table import rule


def _divided(node: Node, dim: int | None) -> Rows | None:
    """Which of the classes, along a dimension of the first input, a rank has; None: all."""
    has = node.has[0]
    return has if isinstance(has, Rows) and has.dim == dim else None


def _last(node: Node) -> int | None:
    rank = node.rank(0)
    return None if rank is None else rank - 1


def _powers(emission: Any, logits: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """How far each class is from the largest of all, its power of that, and the sum of all ranks'
    powers."""
    logits = tf.cast(logits, wide(logits.dtype))
    away = logits - emission.extreme(tf.reduce_max(logits, -1, keepdims=True), "max")
    powers = tf.exp(away)
    return away, powers, emission.total(tf.reduce_sum(powers, -1, keepdims=True))


@rule("Softmax", "LogSoftmax")
def softmax(node: Node) -> Decision | None:
    has = _divided(node, _last(node))
    if has is None:
        return along_the_last(node)

    def emit(emission: Any, inputs: list[tf.Tensor]) -> list[tf.Tensor]:
        away, powers, total = _powers(emission, inputs[0])
        made = away - tf.math.log(total) if node.type == "LogSoftmax" else powers / total
        return [tf.cast(made, inputs[0].dtype)]

    return Decision([has], [has], emit, meets=True)


@rule("SoftmaxCrossEntropyWithLogits", "SparseSoftmaxCrossEntropyWithLogits")
def crossentropy(node: Node) -> Decision | None:
    has, is_sparse = _divided(node, 1), node.type.startswith("Sparse")
    if has is None:
        return along_the_first(node, (0, 1))
    if is_sparse and (has.outer, has.inner) != (ONE, ONE):
        return None

    def emit(emission: Any, inputs: list[tf.Tensor]) -> list[tf.Tensor]:
        logits, labels = inputs
        away, powers, total = _powers(emission, logits)
        if is_sparse:
            labels = _as_likelihoods(emission, labels, logits)
        labels = tf.cast(labels, away.dtype)
        loss = tf.reduce_sum(labels * (tf.math.log(total) - away), -1)
        gradient = powers / total - labels
        return [tf.cast(loss, logits.dtype), tf.cast(gradient, logits.dtype)]

    gives: list[Layout] = [PART, has]
    return Decision([has, SAME if is_sparse else has], gives, emit, meets=True)


def _as_likelihoods(emission: Any, labels: tf.Tensor, logits: tf.Tensor) -> tf.Tensor:
    """Of labels that are numbers of classes zeros and ones of this rank's classes."""
    labels, here = tf.cast(labels, tf.int64), emission.here
    within = tf.reduce_all((labels >= 0) & (labels < here.total))
    with tf.control_dependencies([
        tf.debugging.Assert(within, ["A label is no number of one of so many classes:", here.total])
    ]):  # fmt: skip
        return tf.one_hot(labels - here.first, tf.shape(logits)[1], dtype=logits.dtype)


@rule("ArgMax", "ArgMin")
def index_of_extreme(node: Node) -> Decision | None:
    has, axes = node.has[0], node.axes(1, of=0)
    if not isinstance(has, Rows) or axes is None:
        return None
    if has.dim not in axes:
        return without(node, has, axes, False)
    if (has.outer, has.inner) != (ONE, ONE):
        return None

    def emit(emission: Any, inputs: list[tf.Tensor]) -> list[tf.Tensor]:
        values, _ = inputs
        if values.dtype not in (tf.float32, tf.float64, tf.int32, tf.int64):
            values = tf.cast(values, tf.float32 if values.dtype.is_floating else tf.int64)
        if node.type == "ArgMin":
            values = -values
        if values.dtype.is_floating:  # what is no number is the extreme of nothing
            values = tf.where(tf.math.is_nan(values), -values.dtype.max, values)
        own = tf.reduce_max(values, has.dim)
        number = tf.argmax(values, has.dim) + emission.here.first
        is_largest = own >= emission.extreme(own, "max")
        number = tf.where(is_largest, number, number.dtype.max)
        return [tf.cast(emission.extreme(number, "min"), node.outputs[0].dtype)]

    return Decision([has, SAME], [SAME], emit, meets=True)
