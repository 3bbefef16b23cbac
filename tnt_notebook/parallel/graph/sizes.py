"""Follows the numbers of which shapes are made through the ops that compute with them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tnt_notebook.parallel.graph.broadcasts import repeated_axes
from tnt_notebook.parallel.graph.counts import ZERO, Count, is_one, number, product
from tnt_notebook.parallel.graph.node import Node

#: Larger arrays are no shapes.
_MOST = 64

Numbers = np.ndarray  # of Count | None

#: Whole numbers, and lists of them.
_FOLLOWED = (tf.int32, tf.int64, tf.variant)


def followed(node: Node) -> dict[int, Numbers]:
    """Of the outputs of an op those whose numbers are known, by their indices."""
    rule = _RULES.get(node.type)
    if rule is None or not all(t.dtype in _FOLLOWED for t in node.outputs):
        return {}
    found = rule(node)
    return {} if found is None else found if isinstance(found, dict) else {0: found}


def _array(counts: Any, shape: tuple[int, ...]) -> Numbers:
    array = np.empty(shape, object)
    array[...] = counts
    return array


def _vector(counts: Sequence[Count | None]) -> Numbers:
    array = np.empty(len(counts), object)
    array[:] = counts
    return array


def of_constant(value: Any) -> Numbers | None:
    """A constant's."""
    array = np.asarray(value)
    if array.dtype.kind not in "iu" or array.size > _MOST:
        return None
    return _array([number(each) for each in array.ravel()], (array.size,)).reshape(array.shape)


def _const(node: Node) -> Numbers | None:
    shape = node.outputs[0].shape
    if shape.num_elements() is None or shape.num_elements() > _MOST:
        return None
    return of_constant(tf.get_static_value(node.outputs[0]))


def _shapes(node: Node) -> dict[int, Numbers]:
    found = {i: node.dims(i) for i in range(len(node.inputs))}
    return {i: _vector(each) for i, each in found.items() if each is not None}


def _size(node: Node) -> Numbers | None:
    dims = node.dims(0)
    return None if dims is None else _array(product(dims), ())


def _same(node: Node) -> Numbers | None:
    return node.counts(0)


def _bare(counts: Numbers) -> Numbers:
    return _array(np.frompyfunc(lambda each: each and each.bare, 1, 1)(counts), counts.shape)


def _reshaped(node: Node) -> Numbers | None:
    counts, shape = node.counts(0), node.outputs[0].shape
    return (
        counts.reshape(shape.as_list()) if counts is not None and shape.is_fully_defined() else None
    )


def _pack(node: Node) -> Numbers | None:
    shape = node.inputs[0].shape
    if len(node.inputs) > _MOST or not shape.is_fully_defined():
        return None
    found = [node.counts(i) for i in range(len(node.inputs))]
    if all(each is None for each in found) and shape.rank:
        return None
    alike = [_array(None, tuple(shape)) if each is None else each for each in found]
    return np.stack(alike, axis=node.attr("axis"))


def _transposed(node: Node) -> Numbers | None:
    counts, order = node.counts(0), node.static(1)
    return None if counts is None or order is None else np.transpose(counts, order)


def _concat(node: Node) -> Numbers | None:
    vectors = [node.counts(i) for i in range(len(node.inputs) - 1)]
    found = [
        _array(None, (tensor.shape[0],)) if each is None else each
        for tensor, each in zip(node.inputs, vectors, strict=False)
        if tensor.shape.rank == 1 and tensor.shape[0] is not None
    ]
    if len(found) < len(vectors) or all(each is None for each in vectors):
        return None
    return np.concatenate(found)


def _strided_slice(node: Node) -> Numbers | None:
    counts = node.counts(0)
    bounds = [node.static(i) for i in (1, 2, 3)]
    if counts is None or counts.ndim != 1 or any(b is None or len(b) != 1 for b in bounds):
        return None
    begin, end, stride = (b[0] for b in bounds if b is not None)
    if node.attr("ellipsis_mask") or node.attr("new_axis_mask"):
        return None
    if node.attr("shrink_axis_mask"):
        return _array(counts[begin], ())
    return counts[
        None if node.attr("begin_mask") else begin : None if node.attr("end_mask") else end : stride
    ]


def _slice(node: Node) -> Numbers | None:
    counts, begin, size = node.counts(0), node.static(1), node.static(2)
    if counts is None or begin is None or size is None:
        return None
    pairs = zip(begin, size, strict=True)
    return counts[tuple(slice(b, None if s < 0 else b + s) for b, s in pairs)]


def _gather(node: Node) -> Numbers | None:
    counts, indices = node.counts(0), node.static(1)
    if counts is None or counts.ndim != 1 or indices is None:
        return None
    shape = node.inputs[1].shape.as_list()
    return (
        counts[np.reshape(np.array(indices, int), shape)]
        if shape
        else _array(counts[indices[0]], ())
    )


def _unpack(node: Node) -> dict[int, Numbers] | None:
    counts = node.counts(0)
    if counts is None or counts.ndim != 1:
        return None
    return {i: _array(each, ()) for i, each in enumerate(counts)}


def _prod(node: Node) -> Numbers | None:
    counts, axes = node.counts(0), node.static(1)
    if counts is None or axes is None:
        return None
    if counts.ndim == 1 and axes:
        each = product(counts.tolist())
        return _array(each, (1,) if node.attr("keep_dims") else ())
    return _bare(counts)


def _pairs(combine: Callable[[Count, Count], Count | None]) -> Callable[[Node], Numbers | None]:
    def rule(node: Node) -> Numbers | None:
        left, right = node.counts(0), node.counts(1)
        if left is None or right is None:
            return None
        both = np.frompyfunc(lambda a, b: None if None in (a, b) else combine(a, b), 2, 1)
        return _array(both(left, right), np.broadcast_shapes(left.shape, right.shape))

    return rule


def _floor_div(a: Count, b: Count) -> Count | None:
    if a.is_number and b.is_number and b.factor:
        return number(a.factor // b.factor)
    return a.over(b)


def _floor_mod(a: Count, b: Count) -> Count | None:
    return number(a.factor % b.factor) if a.is_number and b.is_number and b.factor else None


def _maximum(a: Count, b: Count) -> Count | None:
    """There is at least one sample, so what has samples in it is at least its other factors."""
    if a.is_number and b.is_number:
        return number(max(a.factor, b.factor))
    if is_one(a) or is_one(b):
        other = (b if is_one(a) else a).bare
        return other if other.factor >= 1 else None
    return a.bare if a.bare == b.bare else None


def _minimum(a: Count, b: Count) -> Count | None:
    if a.is_number and b.is_number:
        return number(min(a.factor, b.factor))
    return a.bare if a.bare == b.bare else None


def _range(node: Node) -> Numbers | None:
    bounds = [node.static(i) for i in range(3)]
    if any(bound is None for bound in bounds):
        return None
    values = range(*(b[0] for b in bounds if b is not None))
    return _vector([number(each) for each in values]) if len(values) <= _MOST else None


def _fill(node: Node) -> Numbers | None:
    shape, value = node.static(0), node.counts(1)
    if shape is None or value is None or np.prod(shape) > _MOST:
        return None
    return _array(value.item(), tuple(shape))


def _stitch(node: Node) -> Numbers | None:
    half = len(node.inputs) // 2
    result: dict[int, Count | None] = {}
    for i in range(half):
        indices, values = node.static(i), node.counts(half + i)
        if indices is None or values is None:
            return None
        result.update(zip(indices, values.ravel().tolist(), strict=True))
    return _vector([result.get(i) for i in range(max(result) + 1)]) if result else None


def _scattered(node: Node) -> Numbers | None:
    counts, indices, updates = node.counts(0), node.static(1), node.counts(2)
    if counts is None or counts.ndim != 1 or indices is None or updates is None:
        return None
    result = counts.copy()
    result[indices] = updates.ravel()
    return result


def _inverted(node: Node) -> Numbers | None:
    order = node.static(0)
    return None if order is None else of_constant(np.argsort(order))


def _put(at: int) -> Callable[[Node], Numbers | None]:
    """Of a list all of whose elements are alike."""

    def rule(node: Node) -> Numbers | None:
        before, item = node.counts(0), node.counts(at)
        if item is None or (before is not None and before.tolist() != item.tolist()):
            return None
        return item

    return rule


def _popped(node: Node) -> dict[int, Numbers] | None:
    counts = node.counts(0)
    return None if counts is None else {0: counts, 1: counts}


def _offsets(node: Node) -> dict[int, Numbers] | None:
    """Where each of several tensors begins in their concatenation."""
    axis = node.static(0)
    shapes = [node.counts(i) for i in range(1, len(node.inputs))]
    if axis is None or any(shape is None for shape in shapes):
        return None
    found: dict[int, Numbers] = {}
    begin: Count | None = ZERO
    for i, shape in enumerate(shapes):
        assert shape is not None
        offset = _array(ZERO, shape.shape)
        offset[axis[0]] = begin
        found[i] = offset
        size = shape[axis[0]]
        begin = begin.plus(size) if begin is not None and size is not None else None
    return found


_RULES: dict[str, Callable[[Node], Any]] = {
    "Const": _const,
    **dict.fromkeys(("Shape", "ShapeN"), _shapes),
    "Size": _size,
    **dict.fromkeys(("Identity", "StopGradient", "PreventGradient", "Cast", "EnsureShape"), _same),
    **dict.fromkeys(("Reshape", "ExpandDims", "Squeeze"), _reshaped),
    "Pack": _pack,
    "Transpose": _transposed,
    "ConcatV2": _concat,
    "StridedSlice": _strided_slice,
    "Slice": _slice,
    "GatherV2": _gather,
    "Unpack": _unpack,
    "Prod": _prod,
    "Mul": _pairs(lambda a, b: a.times(b).bare),
    **dict.fromkeys(("AddV2", "Add"), _pairs(lambda a, b: a.plus(b))),
    "Sub": _pairs(lambda a, b: a.plus(b, -1)),
    "FloorDiv": _pairs(_floor_div),
    "FloorMod": _pairs(_floor_mod),
    "Maximum": _pairs(_maximum),
    "Minimum": _pairs(_minimum),
    "Range": _range,
    "Fill": _fill,
    "DynamicStitch": _stitch,
    "TensorScatterUpdate": _scattered,
    "InvertPermutation": _inverted,
    "ConcatOffset": _offsets,
    "BroadcastGradientArgs": repeated_axes,
    "TensorListPushBack": _put(1),
    "TensorListSetItem": _put(2),
    "TensorListPopBack": _popped,
    "TensorListGetItem": _same,
}


def depends_on_rows(counts: Numbers | None) -> bool:
    """Whether samples count in some of these numbers, as far as they are followed."""
    return counts is None or any(each is None or each.rows for each in np.ravel(counts))
