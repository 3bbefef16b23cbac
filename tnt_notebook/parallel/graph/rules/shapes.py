"""Ops that only move, repeat or leave out what is there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from tnt_notebook.parallel.graph.counts import ONE, Count, is_one, number, product
from tnt_notebook.parallel.graph.layouts import PART, SAME, SIZE, Layout, Rows
from tnt_notebook.parallel.graph.node import Decision, Node
from tnt_notebook.parallel.graph.own_shapes import by_samples_beside, with_size
from tnt_notebook.parallel.graph.table import rule


class _Place(NamedTuple):
    """Where a reshape puts the samples."""

    dim: int
    outer: Count
    inner: Count


def _place(dims: Sequence[Count], has: Rows, shape: Sequence[Count | None]) -> _Place | None:
    """The only dimension of a new shape that can have the samples; None: there is none, or several.

    What comes before the samples stays before them, and so what comes after.
    """
    before = product([*dims[: has.dim], has.outer])
    after = product([has.inner, *dims[has.dim + 1 :]])
    found = []
    for dim, size in enumerate(shape):
        left, right = product(shape[:dim]), product(shape[dim + 1 :])
        if left is None or right is None or before is None or after is None:
            continue
        outer, inner = before.over(left), after.over(right)
        if outer is None or inner is None or outer.factor < 1 or inner.factor < 1:
            continue
        wanted = product([outer, Count(rows=1), inner])
        known = size is not None and size.rows
        if known and size is not None and size.bare != wanted:
            continue
        found.append((bool(known), _Place(dim, outer, inner)))
    certain = [place for known, place in found if known] or [place for _, place in found]
    return certain[0] if len(certain) == 1 else None if found else _in_front(has, shape)


def _in_front(has: Rows, shape: Sequence[Count | None]) -> _Place | None:
    """Where samples are one after another before and after, what each has is reshaped by itself,
    whatever the sizes are that only a run tells: together they are as many as before."""
    first = shape[0] if shape else None
    if first is None or first.rows != 1 or first.before not in (None, ONE):
        return None
    if has.dim != 0 or has.outer != ONE:
        return None
    return _Place(0, ONE, Count(first.factor, first.of))


@rule("Reshape")
def reshape(node: Node) -> Decision | None:
    has = node.has[0]
    if has == PART and node.has[1] == SAME:
        return Decision([PART, SAME], [PART])
    dims, shape = node.dims(0), node.counts(1)
    if not isinstance(has, Rows) or dims is None:
        return None
    if shape is None:
        sizes = node.facts.shape(node.outputs[0])
        if sizes is None:
            return None
        # As far as tracing has told.
        wanted: list[Count | None] = [None if size is None else number(size) for size in sizes]
    else:
        wanted = resolved(shape.tolist(), dims)
    place = _place(dims, has, wanted)
    if place is None:
        return None
    known = shape is not None and shape[place.dim] is not None and shape[place.dim].rows
    # A rank's own sizes are those of its rows: elsewhere samples count as often as there are any.
    is_own = node.has[1] == SIZE and not by_samples_beside(shape, place.dim)

    def emit(emission: Any, inputs: list[tf.Tensor]) -> list[tf.Tensor]:
        values, target = inputs
        local = with_size(target, place.dim, emission.amount(_samples(place)))
        return [tf.reshape(values, local)]

    gives = Rows(place.dim, place.outer, place.inner)
    if known and is_own:
        return Decision([has, SIZE], [gives])
    return Decision([has, SIZE if is_own else SAME], [gives], emit)


def _samples(place: _Place) -> Count:
    size = product([place.outer, Count(rows=1), place.inner])
    assert size is not None
    return size


def resolved(shape: list[Count | None], dims: Sequence[Count] | None) -> list[Count | None]:
    """A shape without the -1 that stands for what is left."""
    open_ = [i for i, size in enumerate(shape) if size is not None and size.factor < 0]
    if len(open_) != 1 or dims is None:
        return shape
    rest = product([size for i, size in enumerate(shape) if i != open_[0]])
    whole = product(dims)
    left = whole.over(rest) if rest is not None and whole is not None and rest.factor else None
    return [left if i in open_ else size for i, size in enumerate(shape)]


@rule("Transpose")
def transpose(node: Node) -> Decision | None:
    has, order = node.has[0], node.static(1)
    if has == PART:
        return Decision([PART, SAME], [PART])
    if not isinstance(has, Rows) or order is None:
        return None
    return Decision([has, SAME], [has.at(order.index(has.dim))])


@rule("ExpandDims")
def expand(node: Node) -> Decision | None:
    has, axes, rank = node.has[0], node.static(1), node.rank(0)
    if has == PART:
        return Decision([PART, SAME], [PART])
    if not isinstance(has, Rows) or axes is None or rank is None:
        return None
    axis = axes[0] % (rank + 1)
    return Decision([has, SAME], [has.at(has.dim + (axis <= has.dim))])


@rule("Squeeze")
def squeeze(node: Node) -> Decision | None:
    has, rank, dims = node.has[0], node.rank(0), node.dims(0)
    if has == PART:
        return Decision([PART], [PART])
    if not isinstance(has, Rows) or rank is None or dims is None:
        return None
    named = [axis % rank for axis in node.attr("squeeze_dims")]
    gone = named or [i for i, size in enumerate(dims) if is_one(size)]
    if has.dim in gone or (not named and node.outputs[0].shape.rank != rank - len(gone)):
        return None
    gives = has.at(has.dim - sum(axis < has.dim for axis in gone))
    if named:
        return Decision([has], [gives])
    return Decision([has], [gives], lambda _, inputs: [tf.squeeze(inputs[0], gone)])


@rule("ConcatV2")
def concatenate(node: Node) -> Decision | None:
    count, rank, axis = len(node.inputs) - 1, node.rank(0), node.static(len(node.inputs) - 1)
    if axis is None or rank is None:
        return None
    dim = axis[0] % rank
    if not node.rows:
        return Decision([*[PART] * count, SAME], [PART]) if len(node.parts) == count else None
    first = node.rows[0][1]
    if dim != first.dim:
        wants: list[Layout] = [*[first] * count, SAME]
        return Decision(wants, [first])
    # Batches one after another: what all of them have of a sample has to be the same.
    if len(node.rows) != count or any(has != first for _, has in node.rows):
        return None
    return Decision(
        [*[first] * count, SAME], [Rows(dim, number(count).times(first.outer), first.inner)]
    )


@rule("Pack")
def pack(node: Node) -> Decision | None:
    rank, count = node.rank(0), len(node.inputs)
    if rank is None:
        return None
    if not node.rows:
        return Decision([PART] * count, [PART]) if len(node.parts) == count else None
    axis = node.attr("axis") % (rank + 1)
    first = node.rows[0][1]
    return Decision([first] * count, [first.at(first.dim + (axis <= first.dim))])


@rule("Unpack")
def unpack(node: Node) -> Decision | None:
    has, rank = node.has[0], node.rank(0)
    if has == PART:
        return Decision([PART], node.each(PART))
    if not isinstance(has, Rows) or rank is None:
        return None
    axis = node.attr("axis") % rank
    if axis == has.dim:
        return None
    return Decision([has], node.each(has.at(has.dim - (axis < has.dim))))


def _split(node: Node, values: int, axis_at: int) -> Decision | None:
    has, axes = node.has[values], node.axes(axis_at, of=values)
    wants: list[Layout] = [SAME] * len(node.inputs)
    if has == PART:
        wants[values] = PART
        return Decision(wants, node.each(PART))
    if not isinstance(has, Rows) or axes is None:
        return None
    wants[values] = has
    if has.dim not in axes:
        return Decision(wants, node.each(has))
    # Batches that were put one after another are taken apart again.
    count = len(node.outputs)
    left = has.outer.over(number(count))
    if node.type == "Split" and left is not None:
        return Decision(wants, node.each(Rows(has.dim, left, has.inner)))
    return None


@rule("Split")
def split(node: Node) -> Decision | None:
    return _split(node, 1, 0)


@rule("SplitV")
def split_unevenly(node: Node) -> Decision | None:
    return _split(node, 0, 2)


@rule("Pad", "PadV2", "MirrorPad", "MirrorPadGrad")
def pad(node: Node) -> Decision | None:
    has = node.has[0]
    others: list[Layout] = [SAME] * (len(node.inputs) - 1)
    if has == PART and node.type != "PadV2":
        return Decision([PART, *others], [PART])
    widths = tf.get_static_value(node.inputs[1])
    if not isinstance(has, Rows) or widths is None or widths[has.dim].any():
        return None
    return Decision([has, *others], [has])


@rule("Tile")
def tile(node: Node) -> Decision | None:
    has, times, dims = node.has[0], node.counts(1), node.dims(0)
    if times is None:
        return None
    by_samples = [i for i, each in enumerate(times) if each is None or each.rows]
    if isinstance(has, Rows) and not by_samples:
        outer = times[has.dim].times(has.outer)
        return Decision([has, SAME], [Rows(has.dim, outer, has.inner)])
    if not by_samples and has == PART:
        return Decision([PART, SAME], [PART])
    return _repeated(node.has, by_samples, times.tolist(), dims, 0)


@rule("BroadcastTo")
def broadcast(node: Node) -> Decision | None:
    has, shape, rank = node.has[0], node.counts(1), node.rank(0)
    if shape is None or rank is None:
        return None
    by_samples = [i for i, each in enumerate(shape) if each is None or each.rows]
    if isinstance(has, Rows):
        dim = len(shape) - rank + has.dim
        if by_samples == [dim] and node.has[1] == SIZE:
            return Decision([has, SIZE], [has.at(dim)])
        return None
    if not by_samples and has == PART:
        return Decision([PART, SAME], [PART])
    return _repeated(node.has, by_samples, shape.tolist(), node.dims(0), len(shape) - rank)


def _repeated(
    has: Sequence[Layout],
    by_samples: list[int],
    counts: list[Count | None],
    dims: list[Count] | None,
    new: int,
) -> Decision | None:
    """The same for each sample: where there was one, or nothing, there are rows.

    Args:
        has: of what is repeated, and of the sizes.
        by_samples: which sizes have samples in them.
        new: how many dimensions are put before those that there are.
    """
    if len(by_samples) != 1 or has[1] != SIZE or isinstance(has[0], Rows) or dims is None:
        return None
    dim = by_samples[0]
    count = counts[dim]
    if count is None or count.rows != 1 or (dim >= new and not is_one(dims[dim - new])):
        return None
    entries = count.bare.over(Count(rows=1))
    outer = count.before or ONE
    inner = entries.over(outer) if entries is not None else None
    if inner is None:
        return None
    return Decision([SAME, SIZE], [Rows(dim, outer, inner, repeated=True)])


@rule("Fill")
def fill(node: Node) -> Decision | None:
    shape = node.counts(0)
    if shape is None or node.has[1] == PART:
        return None
    by_samples = [i for i, each in enumerate(shape) if each is None or each.rows]
    found = _repeated(node.has[::-1], by_samples, shape.tolist(), [], len(shape))
    return found and Decision([SIZE, SAME], found.gives)
