"""Variables without a value here: not created yet, or on other ranks, which train that part.

    with tnt.lazy():                 model.fit(...) in a pipeline
        model = build()       ->     own variables are created     ->   the others' never are
    (shapes, no memory)

A variable that is not here keeps its handle, as functions that Keras has traced hold it, without
memory behind it, and says where it is when it is read; or it is brought just then. One that was
built lazily remembers its initializer until it is created. Taken are the tf.Variable inside a
keras.Variable, how Keras makes and loads it, and how TensorFlow calls functions; the same from
Keras 3.10 and TensorFlow 2.16 to 3.15 and 2.21.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from tensorflow.python.eager import context
from tensorflow.python.ops.resource_variable_ops import (
    BaseResourceVariable,
    ResourceVariable,
    UninitializedVariable,
)

from tnt_notebook.errors import ModelError
from tnt_notebook.keras.replaced import replaced


@contextlib.contextmanager
def lazy() -> Iterator[None]:
    """Inside, models are built, or loaded, without memory for their weights.

    ``fit``, ``evaluate`` and ``predict`` on ranks create what a rank needs: in a pipeline the
    weights of its stage and their optimizer state, and those of other stages never; on a mesh its
    blocks of weights that are cut. The values are the ones that they would have had at once. Such a
    model is not gathered after training; ``model.save`` gathers it on rank 0 while it writes.

    Example::

        with tnt.lazy():
            model = build()          # every rank: shapes only
        model = tnt.Model(model, pipeline=tnt.Pipeline(stages=4))
    """

    def defer(_: Any, variable: Any, initializer: Any) -> None:
        with tf.init_scope():
            variable._value = _Lazy(
                shape=variable.shape,
                dtype=variable._dtype,
                name=variable.name,
                trainable=variable.trainable,
            )
        variable._value.path = variable.path
        variable._initializer = initializer

    def keep(assign: Any, variable: Any, value: Any) -> None:
        if is_here(variable):
            return assign(variable, value)
        kept = np.asarray(value)  # a file that is loaded: what is assigned is the initial value
        variable._initializer = lambda shape, dtype=None: tf.cast(kept, dtype)

    with (
        replaced(keras.Variable, "_initialize_with_initializer", defer),
        replaced(keras.Variable, "_direct_assign", keep),
    ):
        yield


#: Materializes what is not here, as soon as any of it is used.
_materialize_all: Callable[[], None] | None = None


@contextlib.contextmanager
def materialized_when_used(
    variables: Sequence[keras.Variable], materialize_all: Callable[[], None]
) -> Iterator[None]:
    """Inside, ``materialize_all`` is called before the first read or assignment of any of these
    variables that is not here, by Python or by a function that was traced before."""
    global _materialize_all
    handles = {id(v._value._handle) for v in variables if isinstance(v._value, _Absent)}

    def called(call: Any, of: Any, name: str, inputs: Sequence[Any], outputs: int) -> Any:
        if any(id(one) in handles for one in inputs):
            _used()
        return call(of, name, inputs, outputs)

    def read(own: Any, variable: tf.Variable, *given: Any, **more: Any) -> Any:
        if id(variable._handle) in handles:  # also where somebody has kept the tf.Variable
            _used()
        return own(variable, *given, **more)

    before = _materialize_all
    _materialize_all = materialize_all if handles else None
    try:
        with (
            replaced(context.Context, "call_function", called),
            replaced(BaseResourceVariable, "_read_variable_op", read),
        ):
            yield
    finally:
        _materialize_all = before


def _used() -> None:
    global _materialize_all
    if _materialize_all is not None:
        materialize_all, _materialize_all = _materialize_all, None
        with tf.init_scope():  # also where a function is traced
            materialize_all()


class _Absent(BaseResourceVariable):
    """What reads of a variable without a value meet."""

    path = ""
    rank: int | None = None  # that has it
    in_blocks = False  # on several ranks
    why = ""

    @property
    def handle(self) -> Any:
        _used()
        return self._handle

    def _read_variable_op(self, no_copy: bool = False) -> Any:
        _used()
        if tf.executing_eagerly() and not _has_value(self):
            place = "has no value yet" if self.rank is None else f"is on rank {self.rank}"
            if self.in_blocks:
                place = "is in blocks on several ranks"
            raise ModelError(f"{self.path} {place}: {self.why}")
        return super()._read_variable_op(no_copy)


class _Lazy(_Absent, UninitializedVariable):
    """Without memory, until it is assigned to."""

    why = (
        "of a model that was built with tnt.lazy() each rank has what it trains. fit, evaluate and "
        "predict on ranks work, and model.save(...) in a cell or script that trains it writes the "
        "whole model."
    )


class _Released(_Absent):
    """In the place of a tf.Variable that had a value here, and will have one again."""

    why = (
        "while a model trains in a pipeline each rank has its own stages, and this training has "
        "not come to its end. The next fit, evaluate or predict on ranks makes the model whole."
    )

    def __init__(self, own: tf.Variable, path: str) -> None:
        super().__init__(
            own.trainable, own.shape, own.dtype, own.handle, handle_name=own.name[:-2],
            unique_id=own._unique_id,
        )  # fmt: skip
        self.own, self.path = own, path


def behind(variable: tf.Variable) -> tf.Variable:
    """The tf.Variable that a keras.Variable has when it is here."""
    return variable.own if isinstance(variable, _Released) else variable


def is_lazy(variable: keras.Variable) -> bool:
    """Whether it was built with :func:`lazy`."""
    return isinstance(variable._value, _Lazy)


def is_here(variable: keras.Variable) -> bool:
    """Whether this rank has its value."""
    return _has_value(variable._value)


def waits_for_value(variable: keras.Variable) -> bool:
    """Whether it was built lazily, and nowhere has a value yet."""
    return is_lazy(variable) and variable._initializer is not None and not is_here(variable)


def take_initializer(variable: keras.Variable) -> Any:
    """What gives a lazy variable its initial value, once."""
    initializer, variable._initializer = variable._initializer, None
    if initializer is None:
        raise ModelError(
            f"{variable.path} has no value on any rank that could give it: the model has trained "
            "in blocks or in a pipeline, and is now divided differently. Save it first, then load "
            "it."
        )
    return initializer


def create(variable: keras.Variable) -> None:
    """Gives a lazy variable its initial value."""
    initializer = take_initializer(variable)
    with tf.init_scope():
        materialize(variable, initializer(variable.shape, dtype=variable._dtype))


def materialize(variable: keras.Variable, value: Any) -> None:
    """Gives a variable a value of its shape and dtype, wherever it was before."""
    variable._initializer = None
    _set(variable, tf.convert_to_tensor(value, variable._value.dtype))
    if isinstance(variable._value, _Released):
        variable._value = variable._value.own


def release(variable: keras.Variable, rank: int) -> None:
    """Gives the memory of a variable back: it is on ``rank``."""
    variable._initializer = None
    if is_here(variable):
        _empty(variable)
    if type(variable._value) is ResourceVariable:
        variable._value = _Released(variable._value, variable.path)
    variable._value.rank = rank


def leave_in_blocks(variable: keras.Variable) -> None:
    """Says of a variable without a value that ranks have blocks of it."""
    if type(variable._value) is ResourceVariable:
        variable._value = _Released(variable._value, variable.path)
    variable._value.in_blocks = True


def _has_value(variable: tf.Variable) -> bool:
    with tf.init_scope():
        if not tf.raw_ops.VarIsInitializedOp(resource=variable._handle):
            return False
        shape = tf.raw_ops.VariableShape(input=variable._handle).numpy()
    return tuple(shape) == tuple(variable.shape)


def _set(variable: keras.Variable, value: tf.Tensor) -> None:
    """Assigns without a look at the shape that was there: another one has given its memory back."""
    with tf.init_scope():
        tf.raw_ops.AssignVariableOp(resource=variable._value._handle, value=value)


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
