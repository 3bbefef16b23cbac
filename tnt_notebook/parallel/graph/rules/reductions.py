"""Ops that reduce dimensions. Where samples are among them, samples meet."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from tnt_notebook.parallel.graph.counts import product
from tnt_notebook.parallel.graph.layouts import PART, SAME, Rows
from tnt_notebook.parallel.graph.node import Decision, Node
from tnt_notebook.parallel.graph.table import rule


def without(node: Node, has: Rows, axes: list[int], keep_dims: bool) -> Decision:
    """Of an op that reduces dimensions which have no samples."""
    gone = 0 if keep_dims else sum(axis < has.dim for axis in axes)
    return Decision([has, SAME], [has.at(has.dim - gone)])


@rule("Sum")
def summed(node: Node) -> Decision | None:
    has, axes = node.has[0], node.axes(1, of=0)
    if has == PART:
        return Decision([PART, SAME], [PART])
    if not isinstance(has, Rows) or axes is None:
        return None
    if has.dim in axes:
        return Decision([has, SAME], [PART])
    return without(node, has, axes, node.attr("keep_dims"))


@rule("Mean")
def mean(node: Node) -> Decision | None:
    has, axes = node.has[0], node.axes(1, of=0)
    if has == PART:
        return Decision([PART, SAME], [PART])
    if not isinstance(has, Rows) or axes is None:
        return None
    keep_dims = node.attr("keep_dims")
    if has.dim not in axes:
        return without(node, has, axes, keep_dims)
    if node.inputs[0].dtype.is_integer:  # it is rounded, once
        return None
    dims = node.dims(0)
    count = product(dims[axis] for axis in axes) if dims else None
    if count is None:
        return None

    def emit(emission: Any, inputs: list[tf.Tensor]) -> list[tf.Tensor]:
        values, _ = inputs
        by = tf.cast(emission.amount(count, whole=True), values.dtype)
        return [tf.reduce_sum(values, axes, keep_dims) / by]

    return Decision([has, SAME], [PART], emit)


@rule("Max", "Min", "All", "Any")
def extreme(node: Node) -> Decision | None:
    has, axes = node.has[0], node.axes(1, of=0)
    if not isinstance(has, Rows) or axes is None:
        return None
    keep_dims = node.attr("keep_dims")
    if has.dim not in axes:
        return without(node, has, axes, keep_dims)
    dtype = node.inputs[0].dtype
    largest = node.type in ("Max", "Any")
    if dtype != tf.bool and not (dtype.is_floating or dtype in (tf.int32, tf.int64)):
        return None

    def emit(emission: Any, inputs: list[tf.Tensor]) -> list[tf.Tensor]:
        values = tf.cast(inputs[0], tf.int32) if dtype == tf.bool else inputs[0]
        reduce = tf.reduce_max if largest else tf.reduce_min
        met = emission.extreme(reduce(values, axes, keep_dims), "max" if largest else "min")
        if dtype == tf.bool:  # a rank without samples has the least number there is
            met = met > 0
        return [met]

    return Decision([has, SAME], [SAME], emit, meets=True)


@rule("Prod")
def multiplied(node: Node) -> Decision | None:
    has, axes = node.has[0], node.axes(1, of=0)
    if isinstance(has, Rows) and axes is not None and has.dim not in axes:
        return without(node, has, axes, node.attr("keep_dims"))
    return None


@rule("L2Loss")
def half_of_squares(node: Node) -> Decision | None:
    has = node.has[0]
    return Decision([has], [PART]) if isinstance(has, Rows) else None


@rule("EuclideanNorm")
def norm(node: Node) -> Decision | None:
    has, axes = node.has[0], node.axes(1, of=0)
    if isinstance(has, Rows) and axes is not None and has.dim not in axes:
        return without(node, has, axes, node.attr("keep_dims"))
    return None
