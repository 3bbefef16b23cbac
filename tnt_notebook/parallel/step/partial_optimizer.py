"""An optimizer that has the gradients and slots of some weights here, and of others on other ranks.

Where it needs all of them, as for a norm, ranks exchange what it needs.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import keras
import tensorflow as tf

from tnt_notebook.comm import Communicator, ops
from tnt_notebook.keras.lazy_variables import is_here
from tnt_notebook.keras.optimizers import applied_to, global_norm_replaced, only_slots
from tnt_notebook.keras.replaced import replaced


@contextlib.contextmanager
def seen_as_a_whole(
    over: Communicator,
    optimizer: keras.optimizers.Optimizer,
    variables: Sequence[keras.Variable],
    counts: Callable[[keras.Variable], bool],
) -> Iterator[None]:
    """Inside, an optimizer that is given the gradients of this rank's variables clips them by the
    norm of all, and leaves a step out if any gradient of any rank is not finite.

    Args:
        variables: of which it will be given gradients.
        counts: whether the gradient of a variable counts here; of each it does on one rank.
    """
    with (
        applied_to(optimizer, variables),
        global_norm_replaced(functools.partial(_norm, over, counts), variables),
        replaced(
            keras.optimizers.LossScaleOptimizer, "check_finite",
            functools.partial(_all_finite, over),
        ),
        only_slots(optimizer, is_here),
    ):  # fmt: skip
        yield


def finalized_here(
    and_then: Callable[[keras.optimizers.Optimizer], None] = lambda optimizer: None,
) -> contextlib.AbstractContextManager[None]:
    """Inside, the end of ``fit`` puts moving averages into the weights of which this rank has
    them, and then does what is given."""

    def finalize_own(
        finalize: Callable[..., None], optimizer: Any, variables: Sequence[keras.Variable]
    ) -> None:
        with only_slots(optimizer, is_here):
            finalize(optimizer, variables)
        and_then(optimizer)

    return replaced(keras.optimizers.Optimizer, "finalize_variable_values", finalize_own)


def _norm(
    over: Communicator,
    counts: Callable[[keras.Variable], bool],
    gradients: Sequence[Any],
    variables: Sequence[keras.Variable],
) -> tf.Tensor:
    squares = [tf.constant(0.0, tf.float64)]
    for gradient, variable in zip(gradients, variables, strict=True):
        if gradient is not None and counts(variable):
            # Keras takes the slices of a sparse one each alone.
            numbers = getattr(gradient, "values", gradient)
            squares.append(tf.reduce_sum(tf.square(tf.cast(numbers, tf.float64))))
    (total,) = ops.allreduce([tf.add_n(squares)], label="allreduce of norms", over=over)
    return tf.cast(tf.sqrt(total), gradients[0].dtype)


def _all_finite(
    over: Communicator, check_finite: Callable[..., Any], optimizer: Any, gradients: Any
) -> tf.Tensor:
    own = tf.cast(check_finite(optimizer, gradients), tf.int32)
    label = "allreduce of whether gradients are finite"
    (all_of_them,) = ops.allreduce([own], reduction="min", label=label, over=over)
    return tf.cast(all_of_them, tf.bool)
