"""Ops that take a part of each dimension, or put it back."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from tnt_notebook.parallel.graph.counts import ZERO, Count, product
from tnt_notebook.parallel.graph.layouts import PART, SAME, SIZE, Rows
from tnt_notebook.parallel.graph.node import Decision, Node
from tnt_notebook.parallel.graph.own_shapes import by_samples_beside, with_size
from tnt_notebook.parallel.graph.table import rule


def _sliced(node: Node, rank: int | None) -> tuple[dict[int, int], set[int]] | None:
    """Of a strided slice: to which dimension of the result each of the input goes that is kept,
    and which of them are taken as they are. None: not known."""
    begin = node.inputs[1].shape
    masks = {name: node.attr(f"{name}_mask") for name in
             ("begin", "end", "ellipsis", "new_axis", "shrink_axis")}  # fmt: skip
    if rank is None or not begin.is_fully_defined():
        return None
    entries = int(begin[0])
    used = sum(not masks["new_axis"] >> i & 1 for i in range(entries)) - bool(masks["ellipsis"])
    goes, whole, dim, out = {}, set(), 0, 0
    strides = node.static(3)
    for i in range(entries):
        if masks["ellipsis"] >> i & 1:
            for _ in range(rank - used):
                goes[dim], dim, out = out, dim + 1, out + 1
                whole.add(dim - 1)
        elif masks["new_axis"] >> i & 1:
            out += 1
        elif masks["shrink_axis"] >> i & 1:
            dim += 1
        else:
            if masks["begin"] >> i & 1 and masks["end"] >> i & 1 and strides and strides[i] == 1:
                whole.add(dim)
            goes[dim], dim, out = out, dim + 1, out + 1
    for _ in range(rank - dim):
        goes[dim], dim, out = out, dim + 1, out + 1
        whole.add(dim - 1)
    return goes, whole


@rule("StridedSlice")
def strided_slice(node: Node) -> Decision | None:
    has, found = node.has[0], _sliced(node, node.rank(0))
    if has == PART and SIZE not in node.has:
        return Decision([PART, SAME, SAME, SAME], [PART])
    if not isinstance(has, Rows) or found is None:
        return None
    goes, whole = found
    if has.dim in whole:
        return Decision([has, SAME, SAME, SAME], [has.at(goes[has.dim])])
    blocks, begin, end = _blocks_of_slice(node, has), node.counts(1), node.counts(2)
    if blocks is None or begin is None or end is None or has.dim not in goes:
        return None
    gives = Rows(goes[has.dim], blocks, has.inner)
    if not any(by_samples_beside(counts, has.dim) for counts in (begin, end)):
        return Decision([has, *node.has[1:]], [gives])

    def emit(emission: Any, inputs: list[tf.Tensor]) -> list[tf.Tensor]:
        values, *bounds, strides = inputs
        own = [with_size(bound, has.dim, emission.amount(counts[has.dim] or ZERO))
               for bound, counts in zip(bounds, (begin, end), strict=True)]  # fmt: skip
        return [tf.raw_ops.StridedSlice(
            input=values, begin=own[0], end=own[1], strides=strides, **_masks(node)
        )]  # fmt: skip

    return Decision([has, SAME, SAME, SAME], [gives], emit)


def _masks(node: Node) -> dict[str, Any]:
    names = ("begin", "end", "ellipsis", "new_axis", "shrink_axis")
    return {f"{name}_mask": node.attr(f"{name}_mask") for name in names}


def _blocks_of_slice(node: Node, has: Rows) -> Count | None:
    """Of a slice by sizes, as of the first half of two batches, how many of them it takes."""
    begin, end, strides = node.counts(1), node.counts(2), node.static(3)
    if begin is None or end is None or strides is None or has.dim >= len(strides):
        return None
    masks = [node.attr(f"{name}_mask") >> has.dim & 1 for name in ("begin", "end")]
    if node.attr("ellipsis_mask") or node.attr("new_axis_mask") or strides[has.dim] != 1:
        return None
    first = ZERO if masks[0] else _in_blocks(has, begin[has.dim])
    after = has.outer if masks[1] else _in_blocks(has, end[has.dim])
    if first is None or after is None:
        return None
    if first == ZERO and after == has.outer:
        return after
    if not all(each.is_number for each in (first, after, has.outer)):
        return None
    is_within = 0 <= first.factor < after.factor <= has.outer.factor
    return after.plus(first, -1) if is_within else None


def _in_blocks(has: Rows, place: Count | None) -> Count | None:
    """A place among entries as a number of blocks before it, from the end where it is negative."""
    if place is None or place == ZERO:
        return place
    blocks = _blocks(has, place)
    return has.outer.plus(blocks) if blocks is not None and blocks.factor < 0 else blocks


@rule("StridedSliceGrad")
def strided_slice_gradient(node: Node) -> Decision | None:
    """Puts what a slice had back among zeros: the first input is the shape that was sliced."""
    has, shape = node.has[4], node.inputs[0].shape
    if has == PART:
        return Decision([SAME, SAME, SAME, SAME, PART], [PART]) if SIZE not in node.has else None
    found = _sliced(node, shape[0]) if shape.is_fully_defined() else None
    if not isinstance(has, Rows) or found is None:
        return None
    goes, whole = found
    dims = [dim for dim, out in goes.items() if out == has.dim and dim in whole]
    if len(dims) != 1:
        return None
    gives = has.at(dims[0])
    count = product([has.outer, Count(rows=1), has.inner])

    def emit(emission: Any, inputs: list[tf.Tensor]) -> list[tf.Tensor]:
        local = with_size(inputs[0], gives.dim, emission.amount(count))
        return [tf.raw_ops.StridedSliceGrad(
            shape=local, begin=inputs[1], end=inputs[2], strides=inputs[3], dy=inputs[4],
            **_masks(node),
        )]  # fmt: skip

    if node.has[0] == SIZE and not by_samples_beside(node.counts(0), gives.dim):
        return Decision([SIZE, SAME, SAME, SAME, has], [gives])
    return Decision([SAME, SAME, SAME, SAME, has], [gives], emit)


@rule("Slice")
def slice_(node: Node) -> Decision | None:
    has, begin, size = node.has[0], node.counts(1), node.counts(2)
    if has == PART and SIZE not in node.has:
        return Decision([PART, SAME, SAME], [PART])
    if not isinstance(has, Rows) or begin is None or size is None:
        return None
    first, length = begin[has.dim], size[has.dim]
    if first is None or length is None:
        return None
    before = ZERO if first == ZERO else _blocks(has, first)
    if before is None:
        return None
    blocks = has.outer.plus(before, -1) if length.factor == -1 else _blocks(has, length)
    if blocks is None or blocks.factor < 1:
        return None
    gives = Rows(has.dim, blocks, has.inner)
    if not any(by_samples_beside(counts, has.dim) for counts in (begin, size)):
        return Decision([has, *node.has[1:]], [gives])

    def emit(emission: Any, inputs: list[tf.Tensor]) -> list[tf.Tensor]:
        values, *bounds = inputs
        own = [with_size(bound, has.dim, emission.amount(count))
               for bound, count in zip(bounds, (first, length), strict=True)]  # fmt: skip
        return [tf.slice(values, *own)]

    return Decision([has, SAME, SAME], [gives], emit)


def _blocks(has: Rows, entries: Count) -> Count | None:
    """How many blocks of all samples so many entries are; None: not a number of whole blocks."""
    return entries.bare.over(Count(rows=1).times(has.inner))
