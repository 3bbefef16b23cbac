"""Variables that are not here: not created yet, or on other ranks, which train that part.

    with tnt.lazy():                 model.fit(...) in a pipeline
        model = build()       ->     own variables are created     ->   the others' never are
    (shapes, no memory)

A variable that is not here keeps its handle, as functions that Keras has traced hold it, without
memory behind it, and says where it is when it is read. One that was built lazily remembers its
initializer until it is created.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from keras.src.backend import Variable as _Variable
from tensorflow.python.ops.resource_variable_ops import (
    BaseResourceVariable,
    ResourceVariable,
    UninitializedVariable,
)

from tnt_notebook.comm import World
from tnt_notebook.errors import ModelError
from tnt_notebook.parallel.interpose import replaced


@contextlib.contextmanager
def lazy() -> Iterator[None]:
    """Inside, models are built, or loaded, without memory for their weights.

    ``fit``, ``evaluate`` and ``predict`` on ranks create what a rank needs: in a pipeline the
    weights of its stage and their optimizer state, and those of other stages never. The values are
    the ones that they would have had at once. In a pipeline such a model is not gathered after
    training; ``model.save`` gathers it on rank 0 while it writes.

    Example::

        with tnt.lazy():
            model = build()          # every rank: shapes only
        model = tnt.Model(model, pipeline=tnt.Pipeline(stages=4))
    """

    def defer(_: Any) -> Callable[..., None]:
        def initialize(variable: Any, initializer: Any) -> None:
            with tf.init_scope():
                variable._value = _Lazy(
                    shape=variable.shape,
                    dtype=variable._dtype,
                    name=variable.name,
                    trainable=variable.trainable,
                )
            variable._value.path = variable.path
            variable._initializer = initializer

        return initialize

    def keep(assign: Any) -> Callable[..., None]:
        def direct_assign(variable: Any, value: Any) -> None:
            if is_here(variable):
                return assign(variable, value)
            kept = np.asarray(value)  # a file that is loaded: what is assigned is the initial value
            variable._initializer = lambda shape, dtype=None: tf.cast(kept, dtype)

        return direct_assign

    with (
        replaced(_Variable, "_initialize_with_initializer", defer),
        replaced(_Variable, "_direct_assign", keep),
    ):
        yield


class _SaysWhere(BaseResourceVariable):
    """Of a variable that may be elsewhere."""

    path = ""
    rank: int | None = None  # that has it
    why = ""

    def _read_variable_op(self, no_copy: bool = False) -> Any:
        if tf.executing_eagerly() and not _has_value(self):
            place = "has no value yet" if self.rank is None else f"is on rank {self.rank}"
            raise ModelError(f"{self.path} {place}: {self.why}")
        return super()._read_variable_op(no_copy)


class _Lazy(_SaysWhere, UninitializedVariable):
    """Without memory, until it is assigned to."""

    why = (
        "of a model that was built with tnt.lazy() each rank has what it trains. fit, evaluate and "
        "predict on ranks work, and model.save(...) in a cell or script that trains it writes the "
        "whole model."
    )


class _Dropped(_SaysWhere, ResourceVariable):
    """Had a value here, and will have one again."""

    why = (
        "while a model trains in a pipeline each rank has its own stages, and this training has "
        "not come to its end. The next fit, evaluate or predict on ranks makes the model whole."
    )


def is_lazy(variable: keras.Variable) -> bool:
    """Whether it was built with :func:`lazy`."""
    return isinstance(variable._value, _Lazy)


def is_here(variable: keras.Variable) -> bool:
    """Whether this rank has its value."""
    return _has_value(variable._value)


def create(variable: keras.Variable) -> None:
    """Gives a lazy variable its initial value."""
    initializer, variable._initializer = variable._initializer, None
    with tf.init_scope():
        bring(variable, initializer(variable.shape, dtype=variable._dtype))


def bring(variable: keras.Variable, value: Any) -> None:
    """Gives a variable a value of its shape and dtype, wherever it was before."""
    variable._initializer = None
    _set(variable, tf.convert_to_tensor(value, variable._value.dtype))
    if isinstance(variable._value, _Dropped):
        variable._value.__class__ = ResourceVariable


def drop(variable: keras.Variable, rank: int) -> None:
    """Gives the memory of a variable back: it is on ``rank``."""
    variable._initializer = None
    if is_here(variable):
        _empty(variable)
    if type(variable._value) is ResourceVariable:
        variable._value.__class__ = _Dropped
        variable._value.path = variable.path
    variable._value.rank = rank


def _has_value(variable: tf.Variable) -> bool:
    with tf.init_scope():
        if not tf.raw_ops.VarIsInitializedOp(resource=variable.handle):
            return False
        shape = tf.raw_ops.VariableShape(input=variable.handle).numpy()
    return tuple(shape) == tuple(variable.shape)


def _set(variable: keras.Variable, value: tf.Tensor) -> None:
    """Assigns without a look at the shape that was there: another one has given its memory back."""
    with tf.init_scope():
        tf.raw_ops.AssignVariableOp(resource=variable._value.handle, value=value)


def _empty(variable: keras.Variable) -> None:
    _set(variable, tf.zeros([0, *[1] * max(0, variable.ndim - 1)], variable._value.dtype))


@contextlib.contextmanager
def stand_ins(variables: Sequence[keras.Variable]) -> Iterator[None]:
    """Inside, variables that are not here are all zeros: to see how long a layer takes."""
    absent = [v for v in variables if not is_here(v)]
    for variable in absent:
        _set(variable, tf.zeros(variable.shape, variable._value.dtype))
    try:
        yield
    finally:
        for variable in absent:
            _empty(variable)


def shared(over: World, variable: keras.Variable, root: int) -> np.ndarray:
    """The value on rank ``root``, on all ranks, whether they have it or not. Collective."""
    if over.rank == root:
        return over.broadcast(np.asarray(variable.value), root)
    dtype = tf.as_dtype(variable.dtype).as_numpy_dtype
    return over.broadcast(np.empty(tuple(variable.shape), dtype), root)


def where(over: World, variables: Sequence[keras.Variable]) -> list[list[int]]:
    """The ranks that have each variable. Collective."""
    own = bytes(is_here(v) for v in variables)
    everyone = over.allgather_bytes(own)
    return [
        [r for r, there in enumerate(column) if there] for column in zip(*everyone, strict=True)
    ]


def distribute(
    over: World, variables: Sequence[keras.Variable], wanted: Sequence[Collection[int]]
) -> None:
    """Brings variables to the ranks that want them, from one that has them. Collective.

    What no rank has gets its initial value there.
    """
    for variable, having, wanting in zip(variables, where(over, variables), wanted, strict=True):
        wants = over.rank in wanting
        if not having:
            if wants:
                create(variable)
        elif not set(wanting) <= set(having):
            value = shared(over, variable, having[0])
            if wants and over.rank not in having:
                bring(variable, value)
