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
dimensions; a ``deposit`` a reduce-scatter, or what halos send back. Each is one op of the backend,
on one channel.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import tensorflow as tf

from tnt_notebook.comm import Communicator, ops
from tnt_notebook.parallel.layers.boxes import Box, Piece, Range, beyond, common, pieces
from tnt_notebook.telemetry.exchanges import Purpose

#: A tensor, and how its gradient is computed.
_Differentiated = tuple[tf.Tensor, Callable[[tf.Tensor], tf.Tensor]]


@dataclass(frozen=True)
class Move:
    """What some ranks have of a value, and what they need.

    Attributes:
        have: of each rank; together they have everything once.
        need: of each rank.
        over: the ranks.
        label: what moves, for messages.
        fill: what stands beyond the ends of a dimension.
    """

    have: Sequence[Box]
    need: Sequence[Box]
    over: Communicator
    label: str
    fill: float = 0.0

    @cached_property
    def pieces(self) -> list[Piece]:
        return pieces(self.have, self.need)

    @property
    def back(self) -> str:
        """What its gradient is called."""
        return f"gradient of {self.label}"


def fetch(x: tf.Tensor, move: Move) -> tf.Tensor:
    """The rows that this rank needs. In a graph; all ranks of ``move.over`` make it."""

    return _there_and_back(
        x,
        lambda x: _fetched(x, move, move.label),
        lambda dy: _deposited(dy, move, move.back),
    )


def deposit(x: tf.Tensor, move: Move) -> tf.Tensor:
    """Of its block, the sum of what ranks have that ``fetch`` would have given rows of it."""

    return _there_and_back(
        x,
        lambda x: _deposited(x, move, move.label),
        lambda dy: _fetched(dy, move, move.back),
    )


def gathered(x: tf.Tensor, move: Move) -> tf.Tensor:
    """``fetch`` of everything, for work that all ranks do alike: then all have the same gradient,
    and each keeps that of its block."""

    return _in_turn(
        x,
        lambda x: _fetched(x, move, move.label),
        lambda dy: cut(dy, move.have[move.over.rank]),
    )


def sliced(x: tf.Tensor, move: Move) -> tf.Tensor:
    """This rank's block of what all have: the transpose of ``gathered``."""

    return _there_and_back(
        x,
        lambda x: cut(x, move.have[move.over.rank]),
        lambda dy: _fetched(dy, move, move.back),
    )


def rows_of(x: tf.Tensor, dim: int, rows: Range, size: int, fill: float) -> tf.Tensor:
    """Rows of what is whole, filled beyond its ends."""
    inside = cut(x, {dim: common(rows, (0, size))})
    return padded(inside, {dim: beyond(rows, size)}, fill)


def padded(x: tf.Tensor, beyond: Mapping[int, Range], fill: float) -> tf.Tensor:
    """So many rows before the first one of dimensions, and after their last; none, too: what is
    traced must not depend on the rank."""
    paddings = [beyond.get(dim, (0, 0)) for dim in range(len(x.shape))]
    return tf.pad(x, paddings, constant_values=tf.cast(fill, x.dtype))


def shared(x: tf.Tensor, over: Communicator, label: str) -> tf.Tensor:
    """What all ranks have, for work that they divide: the gradient is the sum of theirs."""

    return _there_and_back(x, tf.identity, lambda dy: _sum(dy, over, f"gradient of {label}"))


def total(x: tf.Tensor, over: Communicator, label: str) -> tf.Tensor:
    """The sum of what ranks have, for work that all do alike."""

    return _in_turn(x, lambda x: _sum(x, over, label), tf.identity)


def _there_and_back(
    x: tf.Tensor,
    there: Callable[[tf.Tensor], tf.Tensor],
    back: Callable[[tf.Tensor], tf.Tensor],
) -> tf.Tensor:
    """Applies an exchange whose gradient is one, too. Its channel follows from where in the model
    it is, not from when gradients come by."""
    gradient = ops.Reserved()

    @tf.custom_gradient
    def moved(x: tf.Tensor) -> _Differentiated:
        def differentiated(dy: tf.Tensor) -> tf.Tensor:
            with gradient.used():
                return _in_turn(dy, back, there)

        return there(x), differentiated

    return moved(x)


def _in_turn(
    x: tf.Tensor,
    there: Callable[[tf.Tensor], tf.Tensor],
    back: Callable[[tf.Tensor], tf.Tensor],
) -> tf.Tensor:
    """Applies one of two functions of which each is the other's gradient."""

    @tf.custom_gradient
    def moved(x: tf.Tensor) -> _Differentiated:
        return there(x), lambda dy: _in_turn(dy, back, there)

    return moved(x)


def _sum(x: tf.Tensor, over: Communicator, label: str) -> tf.Tensor:
    (result,) = ops.allreduce([x], label=label, over=over, purpose=Purpose.CONVERSION)
    result.set_shape(x.shape)
    return result


def _fetched(x: tf.Tensor, move: Move, label: str) -> tf.Tensor:
    rank, pieces = move.over.rank, [(p.source, p.target, p.box) for p in move.pieces]
    have, need = move.have[rank], move.need[rank]
    return ops.move(x, pieces, have, need, move.fill, label, move.over, Purpose.CONVERSION)


def _deposited(dy: tf.Tensor, move: Move, label: str) -> tf.Tensor:
    rank, pieces = move.over.rank, [(p.target, p.source, p.box) for p in move.pieces]
    have, need = move.have[rank], move.need[rank]
    return ops.move(dy, pieces, need, have, 0.0, label, move.over, Purpose.CONVERSION)


def cut(x: tf.Tensor, box: Box) -> tf.Tensor:
    """Some rows of what is whole."""
    index = [slice(None)] * len(x.shape)
    for dim, (begin, end) in box.items():
        index[dim] = slice(begin, end)
    return x[tuple(index)]
