"""Shapes that TensorFlow does not tell while it traces, since they hang on numbers that it does not
follow."""

from __future__ import annotations

from itertools import zip_longest

import tensorflow as tf

from tnt_notebook.parallel.graph.counts import ONE, Count, is_one, number
from tnt_notebook.parallel.graph.node import Node
from tnt_notebook.parallel.graph.rules.elements import ALL
from tnt_notebook.parallel.graph.rules.shapes import resolved

#: Of dimensions.
Sizes = list[Count | None]

_REDUCED = ("Sum", "Mean", "Max", "Min", "All", "Any", "Prod", "EuclideanNorm")


#: Ops whose last output has the shape of their first input; another one has a number for each row.
_LIKE_FIRST = (
    "LogSoftmax", "Softmax", "SoftmaxCrossEntropyWithLogits", "SparseSoftmaxCrossEntropyWithLogits",
)  # fmt: skip


def inferred(node: Node, output: tf.Tensor) -> Sizes | None:
    """The sizes of an output of an op, None those that are not known; None: none of them."""
    own = output.shape
    if node.type in _LIKE_FIRST:
        like = _sizes(node, 0)
        found = like if like is None or output is node.outputs[-1] else like[:1]
    else:
        found = _found(node) if len(node.outputs) == 1 else None
    if found is None or own.rank is None:
        return found
    return [each if size is None else number(size) for size, each in zip(own, found, strict=True)]


def _sizes(node: Node, index: int) -> Sizes | None:
    """Of an input."""
    return node.facts.known_sizes(node.inputs[index])


def _found(node: Node) -> Sizes | None:
    if node.type in _REDUCED:
        return _without(node, _sizes(node, 0), keep=node.attr("keep_dims"))
    if node.type in ("ArgMax", "ArgMin"):
        return _without(node, _sizes(node, 0), keep=False)
    if node.type == "Transpose":
        order, sizes = node.static(1), _sizes(node, 0)
        return None if order is None or sizes is None else [sizes[i] for i in order]
    if node.type in ("ExpandDims", "Squeeze"):
        return _with_ones(node, _sizes(node, 0))
    if node.type == "Reshape":
        shape = node.counts(1)
        return None if shape is None else _bare(resolved(shape.tolist(), node.dims(0)))
    if node.type == "BroadcastTo":
        return _given(node, 1)
    if node.type == "Fill":
        return _given(node, 0)
    if node.type == "Tile":
        return _times(_sizes(node, 0), _given(node, 1))
    if node.type not in ALL:
        return None
    return _broadcast([_sizes(node, i) for i in range(len(node.inputs))])


def _without(node: Node, sizes: Sizes | None, keep: bool) -> Sizes | None:
    """Without the dimensions that are reduced, or with one entry along each."""
    axes = node.axes(1, of=0)
    if sizes is None or axes is None:
        return None
    if keep:
        return [ONE if i in axes else size for i, size in enumerate(sizes)]
    return [size for i, size in enumerate(sizes) if i not in axes]


def _with_ones(node: Node, sizes: Sizes | None) -> Sizes | None:
    """With a dimension of one more, or without some."""
    if sizes is None:
        return None
    if node.type == "Squeeze":
        rank, gone = len(sizes), list(node.op.get_attr("squeeze_dims"))
        axes = {axis % rank for axis in gone}
        return [size for i, size in enumerate(sizes) if i not in axes] if gone else None
    named = node.static(1)
    if named is None:
        return None
    axis = named[0] % (len(sizes) + 1)
    return [*sizes[:axis], ONE, *sizes[axis:]]


def _given(node: Node, index: int) -> Sizes | None:
    counts = node.counts(index)
    return None if counts is None else _bare(counts.tolist())


def _bare(counts: Sizes) -> Sizes:
    """Without those that are not known, or in which samples count."""
    return [
        count.bare if count is not None and not count.rows and count.factor >= 0 else None
        for count in counts
    ]


def _times(sizes: Sizes | None, often: Sizes | None) -> Sizes | None:
    if sizes is None or often is None:
        return None
    pairs = zip(sizes, often, strict=True)
    return [None if size is None or n is None else size.times(n) for size, n in pairs]


def _broadcast(every: list[Sizes | None]) -> Sizes | None:
    known = [sizes[::-1] for sizes in every if sizes is not None]
    if len(known) < len(every) or not known:
        return None
    result: Sizes = []
    for sizes in zip_longest(*known, fillvalue=ONE):
        others = [size for size in sizes if size is None or not is_one(size)]
        fixed = [size for size in others if size is not None and size.is_number]
        is_one_name = len(set(others)) == 1
        result.append(fixed[0] if fixed else others[0] if is_one_name else None if others else ONE)
    return result[::-1]
