"""Shapes that TensorFlow does not tell while it traces, since they hang on numbers that it does not
follow."""

from __future__ import annotations

from itertools import zip_longest

import tensorflow as tf

from tnt_notebook.parallel.graph.node import Node, Shape
from tnt_notebook.parallel.graph.rules.elements import ALL

_REDUCED = ("Sum", "Mean", "Max", "Min", "All", "Any", "Prod", "EuclideanNorm")


#: Ops whose last output has the shape of their first input; another one has a number for each row.
_LIKE_FIRST = (
    "LogSoftmax", "Softmax", "SoftmaxCrossEntropyWithLogits", "SparseSoftmaxCrossEntropyWithLogits",
)  # fmt: skip


def inferred(node: Node, output: tf.Tensor) -> Shape | None:
    """The shape of an output of an op; None: not known."""
    own = output.shape
    if node.type in _LIKE_FIRST:
        like = node.facts.shape(node.inputs[0])
        found = like if like is None or output is node.outputs[-1] else like[:1]
    else:
        found = _found(node) if len(node.outputs) == 1 else None
    if found is None or own.rank is None:
        return found
    return [size if size is not None else each for size, each in zip(own, found, strict=True)]


def _found(node: Node) -> Shape | None:
    shapes = [node.facts.shape(tensor) for tensor in node.inputs]
    if node.type in _REDUCED:
        return _reduced(node, shapes[0])
    if node.type == "Transpose":
        order = node.static(1)
        return None if order is None or shapes[0] is None else [shapes[0][i] for i in order]
    if node.type in ("Reshape", "BroadcastTo"):
        return _given(node, 1)
    if node.type == "Fill":
        return _given(node, 0)
    return _broadcast(shapes) if node.type in ALL else None


def _reduced(node: Node, shape: Shape | None) -> Shape | None:
    axes = node.axes(1, of=0)
    if shape is None or axes is None:
        return None
    if node.attr("keep_dims"):
        return [1 if i in axes else size for i, size in enumerate(shape)]
    return [size for i, size in enumerate(shape) if i not in axes]


def _given(node: Node, index: int) -> Shape | None:
    counts = node.counts(index)
    if counts is None:
        return None
    return [
        count.factor if count is not None and count.is_number and count.factor >= 0 else None
        for count in counts.tolist()
    ]


def _broadcast(shapes: list[Shape | None]) -> Shape | None:
    known = [shape[::-1] for shape in shapes if shape is not None]
    if len(known) < len(shapes) or not known:
        return None
    result: Shape = []
    for sizes in zip_longest(*known, fillvalue=1):
        others = [size for size in sizes if size != 1]
        fixed = [size for size in others if size is not None]
        result.append(fixed[0] if fixed else None if others else 1)
    return result[::-1]
