"""What exchanges share in which each rank trains weights of its own, and ranks meet at times."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import keras
import tensorflow as tf

from tnt_notebook.comm import ops
from tnt_notebook.keras.state import tensor_of
from tnt_notebook.parallel.exchange import Applied, ExchangeStep
from tnt_notebook.parallel.exchange.buckets import plan


def own_gradients(step: ExchangeStep, gradients: Sequence[Any]) -> list[Any]:
    """This rank's gradients, for its own weights. Without data it has none."""
    result = []
    for gradient in gradients:
        if isinstance(gradient, tf.IndexedSlices):
            values = tf.where(step.scale > 0, gradient.values, 0)
            result.append(tf.IndexedSlices(values, gradient.indices, gradient.dense_shape))
        else:
            result.append(tf.where(step.scale > 0, gradient, 0))
    return result


def meet_every(step: ExchangeStep, steps: int | tf.Tensor, meet: Callable[[], None]) -> None:
    """Lets ranks meet after so many steps, where a step is traced."""

    def met() -> tf.Tensor:
        meet()
        return tf.constant(True)

    is_due = tf.equal((step.number + 1) % tf.cast(steps, tf.int64), 0)
    tf.cond(is_due, met, lambda: tf.constant(False))


def sums(
    step: ExchangeStep, tensors: Sequence[tf.Tensor], scale: tf.Tensor | float, what: str
) -> list[tf.Tensor]:
    """Of ``scale * tensor`` over the ranks, of each tensor; in buckets."""
    result = list(tensors)
    sizes = [tensor.shape.num_elements() * tensor.dtype.size for tensor in tensors]
    for number, bucket in enumerate(plan(sizes, [tensor.dtype.name for tensor in tensors])):
        label = f"allreduce of {what}, bucket {number}"
        summed = ops.allreduce([tensors[i] for i in bucket], scale, label=label, over=step.over)
        for i, tensor in zip(bucket, summed, strict=True):
            result[i] = tensor
    return result


def values(variables: Sequence[keras.Variable]) -> list[tf.Tensor]:
    """What variables hold now."""
    return [tf.identity(tensor_of(variable)) for variable in variables]


def assign_all(variables: Sequence[keras.Variable], tensors: Sequence[tf.Tensor]) -> None:
    for variable, tensor in zip(variables, tensors, strict=True):
        variable.assign(tensor)


def average_state(step: ExchangeStep, applied: Sequence[Applied]) -> None:
    """Gives all ranks the mean of what their optimizers have kept of steps of their own."""
    every_one = {id(v): v for one in applied for v in one.state}
    state = [v for v in every_one.values() if tensor_of(v).dtype.is_floating]
    if state:
        assign_all(state, sums(step, values(state), 1 / step.over.size, "optimizer state"))
