"""Variables of which this rank has a block, and not the whole.

Meanwhile a keras.Variable has the shape of its block, and another tf.Variable, so that layers and
optimizers work with it as they are. Taken are the tf.Variable inside, and the shape beside it; the
same from Keras 3.10 to 3.15.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tnt_notebook.keras.initial import Index, initial_block
from tnt_notebook.keras.lazy_variables import (
    is_here,
    leave_in_blocks,
    materialize,
    take_initializer,
)


class Block:
    """A variable that can be whole, or this rank's block. One that was built lazily, and has no
    value yet, gets that of the block alone::

        whole  --cut()-->  block  --set_aside()-->  absent, the block is kept
          ^                 | ^                        |
          +------join()-----+ +---------cut()----------+

    Args:
        index: of the block in the whole.

    Attributes:
        whole_shape: of the whole.
        is_aside: whether the block is kept while the variable is absent.
    """

    def __init__(self, variable: keras.Variable, index: Index) -> None:
        self.variable, self.index = variable, index
        self.whole_shape = tuple(variable.shape)
        self._own: Any = None  # the tf.Variable of the whole, while there is a block in its place
        self._block: Any = None
        self.is_aside = False

    @property
    def is_cut(self) -> bool:
        return self._own is not None

    def cut(self) -> None:
        """Gives back the memory of all but the block."""
        if self.is_cut:
            return
        own = self.variable._value
        if not self.is_aside:
            with tf.init_scope():
                self._keep(self._value())
                _assign(own, tf.zeros([0] * len(self.whole_shape), own.dtype))
        self.is_aside = False
        self._own = own
        self.variable._value, self.variable._shape = self._block, tuple(self._block.shape)

    def set_aside(self) -> None:
        """Keeps a block for later; meanwhile the variable has the shape of the whole, and says that
        it is not here when it is read."""
        if self.is_cut:
            self.variable._value, self.variable._shape = self._own, self.whole_shape
            self._own, self.is_aside = None, True
            leave_in_blocks(self.variable)

    def join(self, joined: Callable[[np.ndarray], np.ndarray]) -> None:
        """Makes it whole: by a function that makes the whole of this rank's block."""
        if self.is_aside:
            self.cut()
        if not self.is_cut:
            return
        variable, own = self.variable, self._own
        whole = joined(np.asarray(self._block))
        with tf.init_scope():
            _assign(self._block, tf.zeros([0] * len(self.whole_shape), own.dtype))
        variable._value, variable._shape = own, self.whole_shape
        self._own = None
        materialize(variable, whole)

    def put(self, whole: np.ndarray) -> None:
        """Gives the block, while it is kept, the values of another whole."""
        assert self.is_aside
        with tf.init_scope():
            _assign(self._block, tf.convert_to_tensor(whole[self.index], self._block.dtype))

    @property
    def value(self) -> np.ndarray:
        """This rank's block, while there is one."""
        return np.asarray(self._block)

    def _value(self) -> tf.Tensor:
        """Of the block, of what is whole or has no value yet."""
        variable = self.variable
        if is_here(variable):
            return variable.value[self.index] if self.index else tf.identity(variable.value)
        initializer = take_initializer(variable)
        return initial_block(initializer, self.whole_shape, variable._dtype, self.index)

    def _keep(self, block: tf.Tensor) -> None:
        variable = self.variable
        if self._block is not None:
            _assign(self._block, block)
            return
        # As the one in whose place it is: whether a weight is frozen just now is said by the
        # keras.Variable, which may change its mind.
        watched = variable._value.trainable
        self._block = tf.Variable(block, trainable=watched, name=f"{variable.name}_block")
        # By it optimizers know the variables that they were built for.
        self._block._unique_id = variable._value._unique_id


def _assign(variable: tf.Variable, value: tf.Tensor) -> None:
    """Without a look at the shape that was there."""
    tf.raw_ops.AssignVariableOp(resource=variable.handle, value=value)


class TensorLike(tf.__internal__.types.Tensor):
    """What TensorFlow and Keras take for a tensor, which ``make()`` makes where they look at it."""

    def __init__(
        self, shape: tf.TensorShape, dtype: tf.DType, make: Callable[[], tf.Tensor]
    ) -> None:
        self._shape, self._dtype, self._make = shape, dtype, make

    @property
    def shape(self) -> tf.TensorShape:
        return self._shape

    @property
    def dtype(self) -> tf.DType:
        return self._dtype

    @property
    def ndim(self) -> int:
        return self._shape.rank

    def get_shape(self) -> tf.TensorShape:
        return self._shape

    def __tf_tensor__(self, dtype: Any = None, name: str | None = None) -> tf.Tensor:
        return tf.convert_to_tensor(self._make(), dtype, name=name)


def _overloaded(name: str) -> Any:
    def operator(self: TensorLike, *operands: Any) -> Any:
        return getattr(tf.convert_to_tensor(self), name)(*operands)

    return operator


for _name in tf.Tensor.OVERLOADABLE_OPERATORS:
    setattr(TensorLike, _name, _overloaded(_name))


class Shown:
    """Variables that show others what they do not have.

    Args:
        values: what they show, and of which shape.
    """

    def __init__(self, values: Sequence[tuple[keras.Variable, Any, tuple[int, ...]]]) -> None:
        self._other, self._is_on = values, False

    @contextlib.contextmanager
    def turned(self, on: bool) -> Iterator[None]:
        """Inside, they show it, or they do not."""
        was_on = self._is_on
        self._turn(on)
        try:
            yield
        finally:
            self._turn(was_on)

    def _turn(self, on: bool) -> None:
        if on != self._is_on:
            own = [(v, v._value, v._shape) for v, _, _ in self._other]
            for variable, value, shape in self._other:
                variable._value, variable._shape = value, shape
            self._other, self._is_on = own, on
