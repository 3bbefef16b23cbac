"""Rows of values on their way between ranks, with gradients.

=============  =====================================================  =====================
``fetch``      this rank's block -> the rows that it needs            gradient: ``deposit``
``deposit``    summands of rows -> the sum of this rank's block       ``fetch``
``gathered``   this rank's block -> everything, for work done alike   ``sliced``
``sliced``     what all have -> this rank's block                     ``gathered``
``shared``     what all have, for work that is divided                ``total``
``total``      summands of all -> the sum                             ``shared``
=============  =====================================================  =====================

A ``fetch`` is a gather, a halo exchange or an all-to-all, by who needs what, in any number of
dimensions; a ``deposit`` a reduce-scatter, or what halos send back.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import tensorflow as tf

from tnt_notebook.comm import Communicator, ops
from tnt_notebook.parallel.layers.boxes import Box, Piece, Range, beyond, common, pieces, turns

#: A tensor, and how its gradient is computed.
_Differentiated = tuple[tf.Tensor, Callable[[tf.Tensor], tf.Tensor]]


@dataclass(frozen=True)
class Move:
    """What some ranks have of a value, and what they need.

    Attributes:
        have: of each rank; together they have everything once.
        need: of each rank.
        sizes: of the dimensions that boxes are about.
        over: the ranks.
        label: what moves, for messages.
        fill: what stands beyond the ends of a dimension.
    """

    have: Sequence[Box]
    need: Sequence[Box]
    sizes: dict[int, int]
    over: Communicator
    label: str
    fill: float = 0.0

    @cached_property
    def pieces(self) -> list[Piece]:
        return pieces(self.have, self.need)

    @cached_property
    def turns(self) -> list[list[Piece]]:
        return turns(self.pieces)


def fetch(x: tf.Tensor, move: Move) -> tf.Tensor:
    """The rows that this rank needs. In a graph; all ranks of ``move.over`` make it."""

    @tf.custom_gradient
    def moved(x: tf.Tensor) -> _Differentiated:
        return _fetched(x, move), lambda dy: _deposited(dy, move)

    return moved(x)


def deposit(x: tf.Tensor, move: Move) -> tf.Tensor:
    """Of its block, the sum of what ranks have that ``fetch`` would have given rows of it."""

    @tf.custom_gradient
    def moved(x: tf.Tensor) -> _Differentiated:
        return _deposited(x, move), lambda dy: _fetched(dy, move)

    return moved(x)


def gathered(x: tf.Tensor, move: Move) -> tf.Tensor:
    """``fetch`` of everything, for work that all ranks do alike: then all have the same gradient,
    and each keeps that of its block."""

    @tf.custom_gradient
    def moved(x: tf.Tensor) -> _Differentiated:
        return _fetched(x, move), lambda dy: _cut(dy, move.have[move.over.rank])

    return moved(x)


def sliced(x: tf.Tensor, move: Move) -> tf.Tensor:
    """This rank's block of what all have: the transpose of ``gathered``."""

    @tf.custom_gradient
    def moved(x: tf.Tensor) -> _Differentiated:
        return _cut(x, move.have[move.over.rank]), lambda dy: _fetched(dy, move)

    return moved(x)


def rows_of(x: tf.Tensor, dim: int, rows: Range, size: int, fill: float) -> tf.Tensor:
    """Rows of what is whole, filled beyond its ends."""
    inside = _cut(x, {dim: common(rows, (0, size))})
    return _padded(inside, {dim: beyond(rows, size)}, fill)


def shared(x: tf.Tensor, over: Communicator, label: str) -> tf.Tensor:
    """What all ranks have, for work that they divide: the gradient is the sum of theirs."""

    @tf.custom_gradient
    def copied(x: tf.Tensor) -> _Differentiated:
        return tf.identity(x), lambda dy: _sum(dy, over, f"gradient of {label}")

    return copied(x)


def total(x: tf.Tensor, over: Communicator, label: str) -> tf.Tensor:
    """The sum of what ranks have, for work that all do alike."""

    @tf.custom_gradient
    def summed(x: tf.Tensor) -> _Differentiated:
        return _sum(x, over, label), tf.identity

    return summed(x)


def _sum(x: tf.Tensor, over: Communicator, label: str) -> tf.Tensor:
    (result,) = ops.allreduce([x], label=f"allreduce of {label}", over=over)
    result.set_shape(x.shape)
    return result


def _fetched(x: tf.Tensor, move: Move) -> tf.Tensor:
    rank = move.over.rank
    have, need = move.have[rank], move.need[rank]
    found = {
        _key(piece.box): _cut(x, _inside(piece.box, have))
        for piece in move.pieces
        if piece.source == piece.target == rank
    }

    def outgoing(piece: Piece) -> tf.Tensor:
        return _cut(x, _inside(piece.box, have))

    for piece, tensor in _exchanged(x, move, forward=True, outgoing=outgoing):
        found[_key(piece.box)] = tensor
    if not found:  # all that it needs lies beyond the ends
        nothing = {dim: common(rows, (0, move.sizes[dim])) for dim, rows in need.items()}
        found[()] = tf.zeros(_shape(x, nothing), x.dtype)
    joined = _joined(found, sorted(need))
    around = {dim: beyond(rows, move.sizes[dim]) for dim, rows in need.items()}
    return _padded(joined, around, move.fill)


def _deposited(dy: tf.Tensor, move: Move) -> tf.Tensor:
    rank = move.over.rank
    have, need = move.have[rank], move.need[rank]

    def outgoing(piece: Piece) -> tf.Tensor:
        return _cut(dy, _inside(piece.box, need))

    summands = [
        (piece, outgoing(piece)) for piece in move.pieces if piece.source == piece.target == rank
    ]
    summands += _exchanged(dy, move, forward=False, outgoing=outgoing)
    return _added(summands, have, dy)


def _exchanged(
    like: tf.Tensor, move: Move, forward: bool, outgoing: Callable[[Piece], tf.Tensor]
) -> list[tuple[Piece, tf.Tensor]]:
    """Sends pieces to those who need them, or back to those who had them; gives what comes."""
    rank, over = move.over.rank, move.over
    posted = []
    for turn in move.turns:
        mine = [piece for piece in turn if rank in (piece.source, piece.target)]
        if not mine:
            ops.skip_channels(1)
            continue
        (piece,) = mine
        sends = (piece.source if forward else piece.target) == rank
        peer = piece.target if piece.source == rank else piece.source
        label = f"{move.label} to rank {piece.target if forward else piece.source}"
        if sends:
            ops.send(outgoing(piece), peer, label, over)
        else:
            shape = _shape(like, piece.box)
            posted.append((piece, ops.post(shape, like.dtype, peer, label, over)))
    result = []
    for piece, ticket in posted:
        taken = ops.take(ticket)
        taken.set_shape(_static(like, piece.box))
        result.append((piece, taken))
    return result


# -- boxes of tensors ------------------------------------------------------------------------------


def _key(box: Box) -> tuple[tuple[int, int], ...]:
    return tuple(box[dim] for dim in sorted(box))


def _inside(box: Box, outer: Box) -> Box:
    """A box as those who have the outer one count."""
    return {dim: (b - outer[dim][0], e - outer[dim][0]) for dim, (b, e) in box.items()}


def _cut(x: tf.Tensor, box: Box) -> tf.Tensor:
    index = [slice(None)] * len(x.shape)
    for dim, (begin, end) in box.items():
        index[dim] = slice(begin, end)
    return x[tuple(index)]


def _joined(found: dict[Any, tf.Tensor], dims: Sequence[int]) -> tf.Tensor:
    """Pieces that form a grid, as one tensor."""
    if not dims or () in found:
        (whole,) = found.values()
        return whole
    parts = []
    for rows in sorted({key[0] for key in found}):
        parts.append(_joined({k[1:]: t for k, t in found.items() if k[0] == rows}, dims[1:]))
    return parts[0] if len(parts) == 1 else tf.concat(parts, dims[0])


def _padded(x: tf.Tensor, beyond: dict[int, tuple[int, int]], fill: float) -> tf.Tensor:
    if not any(before or after for before, after in beyond.values()):
        return x
    paddings = [beyond.get(dim, (0, 0)) for dim in range(len(x.shape))]
    return tf.pad(x, paddings, constant_values=tf.cast(fill, x.dtype))


def _added(summands: Sequence[tuple[Piece, tf.Tensor]], have: Box, like: tf.Tensor) -> tf.Tensor:
    """Pieces of a box, added up where they overlap."""
    if not summands:
        return tf.zeros(_shape(like, have), like.dtype)
    parts = []
    for piece, tensor in summands:
        around = {
            dim: (piece.box[dim][0] - begin, end - piece.box[dim][1])
            for dim, (begin, end) in have.items()
        }
        parts.append(_padded(tensor, around, 0.0))
    return parts[0] if len(parts) == 1 else tf.add_n(parts)


def _shape(like: tf.Tensor, box: Box) -> list[Any]:
    dynamic = tf.shape(like, tf.int64)
    return [
        box[dim][1] - box[dim][0] if dim in box else dynamic[dim] if size is None else size
        for dim, size in enumerate(like.shape)
    ]


def _static(like: tf.Tensor, box: Box) -> list[int | None]:
    return [
        box[dim][1] - box[dim][0] if dim in box else size for dim, size in enumerate(like.shape)
    ]
