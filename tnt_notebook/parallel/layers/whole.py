"""Weights of which ranks have blocks, and gradients of these, as a step's own code sees them::

    a step's own code     the whole, which ranks bring together where it is looked at
    layers, optimizers    this rank's block

So a step that clips gradients, adds norms of weights to its loss or keeps averages of them
computes what one process computes, and one that does none of it moves nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from tnt_notebook.comm import ops
from tnt_notebook.errors import ModelError
from tnt_notebook.keras.blocks import TensorLike
from tnt_notebook.parallel.layers.program import WeightLayout
from tnt_notebook.parallel.layers.ranks import MeshRanks

#: What cuts this rank's block out of the whole.
Index = tuple[slice, ...]


class Whole(TensorLike):
    """Of a block the whole, once somebody looks at it.

    Args:
        block: a tensor, IndexedSlices or a tf.Variable.
        shape: of the whole.
        bring: makes the whole of a tensor that is the block.
    """

    def __init__(
        self, block: Any, shape: tf.TensorShape, bring: Callable[[tf.Tensor], tf.Tensor]
    ) -> None:
        super().__init__(shape, block.dtype)
        self.block, self._bring = block, bring

    def made(self) -> tf.Tensor:
        return self._bring(tf.convert_to_tensor(self.block))


class WholeVariable(Whole):
    """The same of a variable, whose gradient is that of the block."""

    _should_act_as_resource_variable = True

    def __init__(
        self,
        block: tf.Variable,
        shape: tf.TensorShape,
        bring: Callable[[tf.Tensor], tf.Tensor],
        index: Index,
    ) -> None:
        super().__init__(block, shape, bring)
        self._index = index

    @property
    def handle(self) -> tf.Tensor:
        return self.block.handle

    def assign(self, value: Any) -> None:
        self.block.assign(tf.convert_to_tensor(value, self.dtype)[self._index])

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise ModelError(
            f"A step's own code uses {name!r} of the tf.Variable inside {self.block.name}, of which "
            "each rank has a block: read or assign the keras.Variable."
        )


def bringing(
    layout: WeightLayout, index: Index, ranks: MeshRanks, label: str, count: int = 1
) -> Callable[[tf.Tensor], tf.Tensor]:
    """A function that makes the whole of a block. All ranks do the same with it, so that each has
    its block of the gradient.

    Args:
        index: of the block.
        count: how many ranks add up their gradients of the block.
    """

    @tf.custom_gradient
    def brought(block: tf.Tensor) -> Any:
        whole = block
        for dim, axis in layout.splits:
            rows = tf.experimental.numpy.moveaxis(whole, dim, 0)
            rows = ops.allgather(rows, f"the whole of {label}", ranks.group([axis]))
            whole = tf.experimental.numpy.moveaxis(rows, 0, dim)

        def gradient(upstream: tf.Tensor) -> tf.Tensor:
            own = tf.convert_to_tensor(upstream)[index]
            return own / tf.cast(count, own.dtype) if count > 1 else own

        return tf.identity(whole), gradient

    return brought
