"""Carries out conversions: each step of :mod:`.conversion` on tensors of this rank."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from tnt_notebook.parallel.layers import moves
from tnt_notebook.parallel.layers.conversion import Kind, Step, conversion_of
from tnt_notebook.parallel.layers.layout import InputLayout, Layout
from tnt_notebook.parallel.layers.moves import Move
from tnt_notebook.parallel.layers.ranks import MeshRanks


def converted(
    x: Any,
    shape: Sequence[int | None],
    layout: Layout,
    input_layout: InputLayout,
    ranks: MeshRanks,
    layer: str,
) -> Any:
    """A value as a layer takes it, from this rank's part of it.

    Args:
        x: this rank's part.
        shape: of the whole value; known of dimensions that are cut.
        layer: that takes it, for messages and the view.
    """
    if isinstance(x, tf.SparseTensor):  # an input of the model, which all ranks take whole
        return x
    for step in conversion_of(shape, layout, input_layout, ranks.mesh):
        x = _after(x, step, ranks, f"{step.kind.words} for {layer}", input_layout.fill)
    return x


def _after(x: tf.Tensor, step: Step, ranks: MeshRanks, label: str, fill: float) -> tf.Tensor:
    """What a step makes of a tensor."""
    if step.kind is Kind.PAD:
        return moves.padded(x, step.around, fill)
    if step.kind is Kind.ROWS:
        ((dim, rows),) = step.need[ranks.place[step.axes[0]]].items()
        return moves.rows_of(x, dim, rows, step.sizes[dim], fill)
    over = ranks.group(step.axes)
    if step.kind is Kind.SUM:
        return moves.total(x, over, label)
    if step.kind is Kind.SHARE:
        return moves.shared(x, over, label)
    return _MOVES[step.kind](x, Move(step.have, step.need, over, label, fill))


_MOVES = {
    Kind.REDUCE_SCATTER: moves.deposit,
    Kind.GATHER: moves.gathered,
    Kind.GATHER_TO_DIVIDE: moves.fetch,
    Kind.SLICE: moves.sliced,
    Kind.HALO: moves.fetch,
    Kind.ALL_TO_ALL: moves.fetch,
}
