"""Variables of which this rank has a block, and not the whole.

Meanwhile a keras.Variable has the shape of its block, and another tf.Variable, so that layers and
optimizers work with it as they are. Taken are the tf.Variable inside, and the shape beside it; the
same from Keras 3.10 to 3.15.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tnt_notebook.keras.absent import bring, create, is_here

#: What cuts the block out of the whole.
Index = tuple[slice, ...]


class Block:
    """A variable that can be whole, or this rank's block.

    Args:
        index: of the block in the whole.

    Attributes:
        whole_shape: of the whole.
    """

    def __init__(self, variable: keras.Variable, index: Index) -> None:
        self.variable, self.index = variable, index
        self.whole_shape = tuple(variable.shape)
        self._own: Any = None  # the tf.Variable of the whole, while there is a block in its place
        self._block: Any = None

    @property
    def is_cut(self) -> bool:
        return self._own is not None

    def cut(self) -> None:
        """Gives back the memory of all but the block."""
        if self.is_cut:
            return
        variable = self.variable
        if not is_here(variable):
            create(variable)
        with tf.init_scope():
            block = variable.value[self.index] if self.index else tf.identity(variable.value)
            if self._block is None:
                self._block = tf.Variable(
                    block, trainable=variable.trainable, name=f"{variable.name}_block"
                )
                # By it optimizers know the variables that they were built for.
                self._block._unique_id = variable._value._unique_id
            else:
                _assign(self._block, block)
            own = variable._value
            _assign(own, tf.zeros([0] * len(self.whole_shape), own.dtype))
        self._own = own
        variable._value, variable._shape = self._block, tuple(self._block.shape)

    def join(self, joined: Callable[[np.ndarray], np.ndarray]) -> None:
        """Makes it whole: by a function that makes the whole of this rank's block."""
        if not self.is_cut:
            return
        variable, own = self.variable, self._own
        whole = joined(np.asarray(self._block))
        with tf.init_scope():
            _assign(self._block, tf.zeros([0] * len(self.whole_shape), own.dtype))
        variable._value, variable._shape = own, self.whole_shape
        self._own = None
        bring(variable, whole)


def _assign(variable: tf.Variable, value: tf.Tensor) -> None:
    """Without a look at the shape that was there."""
    tf.raw_ops.AssignVariableOp(resource=variable.handle, value=value)
