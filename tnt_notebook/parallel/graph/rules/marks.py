"""Ops that say what a value is for: see :mod:`tnt_notebook.parallel.graph.marks`."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from tnt_notebook.keras.copied import mark_of
from tnt_notebook.parallel.graph import marks
from tnt_notebook.parallel.graph.layouts import OWN, PART, SAME, Rows
from tnt_notebook.parallel.graph.node import Decision, Node
from tnt_notebook.parallel.graph.table import rule


@rule("IdentityN")
def identities(node: Node) -> Decision:
    of_mark = _OF_MARK.get(mark_of(node.op))
    return Decision(node.has, node.has) if of_mark is None else of_mark(node)


def _exchanged(node: Node) -> Decision:
    """Each rank's summands, of which what comes after makes the sum."""
    return Decision(node.each(PART), node.each(SAME))


def _exchanged_slices(node: Node) -> Decision:
    """Values, and the rows of a variable that they are for: ranks put theirs one after another."""
    values, rows = node.has
    are_apart = isinstance(values, Rows) and isinstance(rows, Rows) and values == rows
    if not are_apart:
        # Slices of no samples, as of positions: one process has them once, and so do all ranks.
        return Decision([SAME, SAME], node.each(SAME), _of_first)

    def emit(emission: Any, inputs: list[tf.Tensor]) -> list[tf.Tensor]:
        return [
            emission.without_borrowed(each, has) for each, has in zip(inputs, node.has, strict=True)
        ]

    return Decision(node.has, node.each(SAME), emit)


def _of_first(emission: Any, inputs: list[tf.Tensor]) -> list[tf.Tensor]:
    count = emission.on_first(tf.shape(inputs[1], tf.int64)[0])
    return [each[:count] for each in inputs]


def _entered(node: Node) -> Decision:
    return Decision(node.has, node.each(OWN))


def _left(node: Node) -> Decision:
    """A rank without samples has made nothing: zeros, so that it adds nothing."""
    return Decision(node.has, node.each(OWN), of_samples=True)


def _gradient_of_entered(node: Node) -> Decision:
    """A gradient is of the layout of what it is the gradient of."""
    return Decision(node.has, node.each(node.has[1]))


_OF_MARK = {
    marks.EXCHANGED: _exchanged,
    marks.EXCHANGED_SLICES: _exchanged_slices,
    marks.ENTERED: _entered,
    marks.LEFT: _left,
    marks.GRADIENT_OF_ENTERED: _gradient_of_entered,
    marks.GRADIENT_OF_LEFT: _entered,
}
