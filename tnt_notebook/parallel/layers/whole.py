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
from tnt_notebook.keras.initial import Index
from tnt_notebook.parallel.layers.program import WeightLayout
from tnt_notebook.parallel.layers.ranks import MeshRanks

#: What Keras and TensorFlow ask of a variable that is the same of its block: by the first,
#: optimizers know the variables that they were built for.
_OF_BLOCKS = ("_unique_id", "name", "device", "trainable", "graph", "op")


class Whole(TensorLike):
    """Of a block the whole, once somebody looks at it.

    Args:
        block: a tensor, IndexedSlices or a tf.Variable.
        shape: of the whole.
        index: cuts the block out of it.
        bring: makes the whole of a tensor that is the block.
    """

    def __init__(
        self,
        block: Any,
        shape: tf.TensorShape,
        index: Index,
        bring: Callable[[tf.Tensor], tf.Tensor],
    ) -> None:
        super().__init__(shape, block.dtype, self._made)
        self.block, self.index, self._bring = block, index, bring

    def _made(self) -> tf.Tensor:
        whole = self._bring(tf.convert_to_tensor(self.block))
        whole.set_shape(self.shape)
        return whole


class WholeVariable(Whole):
    """The same of a variable, whose gradient is that of the block."""

    _should_act_as_resource_variable = True

    @property
    def handle(self) -> tf.Tensor:
        return self.block.handle

    def assign(self, value: Any) -> None:
        self.block.assign(block_of(value, self.index))

    def assign_add(self, value: Any) -> None:
        self.block.assign_add(block_of(value, self.index))

    def assign_sub(self, value: Any) -> None:
        self.block.assign_sub(block_of(value, self.index))

    def scatter_update(self, slices: tf.IndexedSlices) -> None:
        self.block.scatter_update(self._rows_of(slices))

    def scatter_add(self, slices: tf.IndexedSlices) -> None:
        self.block.scatter_add(self._rows_of(slices))

    def scatter_sub(self, slices: tf.IndexedSlices) -> None:
        self.block.scatter_sub(self._rows_of(slices))

    def _rows_of(self, slices: tf.IndexedSlices) -> tf.IndexedSlices:
        """Slices of the whole, of which there are none where its rows are cut."""
        return tf.IndexedSlices(block_of(slices.values, self.index), slices.indices)

    def __getattr__(self, name: str) -> Any:
        if name in _OF_BLOCKS:
            return getattr(self.block, name)
        if name.startswith("_"):
            raise AttributeError(name)
        raise ModelError(
            f"A step's own code uses {name!r} of the tf.Variable inside {self.block.name}, of "
            "which each rank has a block: read or assign the keras.Variable."
        )


def block_of(whole: Any, index: Index) -> Any:
    """This rank's block of a whole that was brought together, or of what was made of one."""
    is_of_block = isinstance(whole, Whole) and whole.index == index
    return whole.block if is_of_block else tf.convert_to_tensor(whole)[index]


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
