"""TensorFlow's random state, and how it traces. The same from TensorFlow 2.16 to 2.21."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import tensorflow as tf
from tensorflow.python.eager import context as eager
from tensorflow.python.ops.resource_variable_ops import BaseResourceVariable, ResourceVariable

from tnt_notebook.keras.lazy_variables import behind
from tnt_notebook.keras.replaced import replaced


def random_seed() -> int | None:
    """The seed that was given to ``tf.random.set_seed``."""
    return eager.global_seed()


def random_state() -> tuple[Any, ...]:
    """The state of the generator that gives ops without a seed their own: as that of Python's
    ``random.Random``."""
    return eager.context()._rng.getstate()


def set_random_state(seed: int, operations: tuple[Any, ...], anew: bool = False) -> None:
    """Makes these the random state. ``anew``: also where the seed is the same TensorFlow forgets
    what was drawn with it."""
    if eager.global_seed() != seed or anew:
        tf.random.set_seed(seed)
    eager.context()._rng.setstate(operations)


def share_functions(source: Any, target: Any) -> None:
    """Makes the functions that ops of one tf.function's graph call known in another's, and keeps
    them alive."""
    for function in source._functions.values():
        target._add_function_recursive(function)


def is_independent(op: tf.Operation) -> bool:
    """Whether :func:`run_independently` was told of an op, or of what it is a copy of."""
    return bool(op.node_def.attr["_independent_side_effects"].b)


def run_independently(made: tf.Tensor | tf.Operation) -> None:
    """Takes an op out of the order of a tf.function: there, ops with side effects wait for the one
    that was traced before them. It still runs before its function returns."""
    order = getattr(getattr(made, "graph", None), "experimental_acd_manager", None)
    if order is not None:
        order.run_independently(made if isinstance(made, tf.Operation) else made.op)


def made_while_tracing(value: Any, **options: Any) -> tf.Variable:
    """A variable for what is traced just now; it has its value at once. Where a function makes one
    in the usual way, TensorFlow throws its trace away, and traces all of it again.

    Args:
        options: others of tf.Variable.
    """
    with tf.init_scope():
        return tf.Variable(
            value, trainable=False, experimental_enable_variable_lifting=False, **options
        )


def wide(dtype: tf.DType | str) -> tf.DType:
    """In what numbers are summed: of 16 bits in float32, others as they are."""
    dtype = tf.as_dtype(dtype)
    return tf.float32 if dtype.is_floating and dtype.size < 4 else dtype


@contextlib.contextmanager
def assignments_recorded(seen: Callable[[tf.Variable], None]) -> Iterator[None]:
    """Inside, calls ``seen`` with every variable that is assigned, that of a keras.Variable too."""

    def recorded(
        assign: Callable[..., Any], variable: tf.Variable, *given: Any, **more: Any
    ) -> Any:
        seen(behind(variable))
        return assign(variable, *given, **more)

    with contextlib.ExitStack() as stack:
        for kind in (BaseResourceVariable, ResourceVariable):  # some versions have them in both
            for name in [n for n in vars(kind) if n.startswith(("assign", "scatter_"))]:
                stack.enter_context(replaced(kind, name, recorded))
        yield
