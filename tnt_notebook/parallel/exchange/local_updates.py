"""What exchanges share in which each rank trains weights of its own, and ranks meet at times."""

from __future__ import annotations

import contextlib
import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import keras
import tensorflow as tf

from tnt_notebook.comm import channels, ops
from tnt_notebook.keras.state import tensor_of
from tnt_notebook.parallel.exchange import Applied, Exchange, ExchangeStep
from tnt_notebook.parallel.exchange.allreduce import sums

#: Of a model, at most, where each has channels of its own.
_MOST_OPTIMIZERS = 4


@dataclass(frozen=True)
class LocalUpdates(Exchange):
    """The optimizer of each rank applies the rank's own gradients; how ranks meet is a subclass's.
    At the end of an epoch they do, and take the mean of what their optimizers keep."""

    gives_up: ClassVar[str] = "equality with one process, and within an epoch that of the ranks"
    settles: ClassVar[bool] = True
    keeps_ranks_equal: ClassVar[bool] = False
    late_logs: ClassVar[bool] = True

    def gradients(
        self, step: ExchangeStep, gradients: Sequence[Any], variables: Sequence[keras.Variable]
    ) -> list[Any]:
        return [_own(step, gradient) for gradient in gradients]

    def settle(self, step: ExchangeStep, applied: Sequence[Applied]) -> None:
        variables = [variable for one in applied for variable in one.variables]
        own = values(variables)
        for one in applied:
            self.come_together(step, one.variables)
        self._measure(step, own, values(variables))
        every_one = {id(v): v for one in applied for v in one.state}
        state = [v for v in every_one.values() if tensor_of(v).dtype.is_floating]
        if state:
            part = 1 / step.over.size
            assign_all(state, sums(step, values(state), state, part, "mean of optimizer state"))

    def _measure(
        self, step: ExchangeStep, own: Sequence[tf.Tensor], common: Sequence[tf.Tensor]
    ) -> None:
        """Keeps how far the rank that is farthest was from the common weights, by their norm."""
        pairs = zip(own, common, strict=True)
        ways = [tf.cast(mine - all_ranks, tf.float64) for mine, all_ranks in pairs]
        whole = [tf.cast(tensor, tf.float64) for tensor in common]  # which may be of several dtypes
        apart = tf.linalg.global_norm(ways) / tf.linalg.global_norm(whole)
        label = "how far weights are apart"
        (most,) = ops.allreduce([apart], reduction="max", label=label, over=step.over)
        if most > 0:  # else they had come together before
            _apart(step).assign(most)

    def seen(self, step: ExchangeStep) -> str:
        apart = float(_apart(step))
        said = f"weights of ranks were {100 * apart:.2g} % apart at the end of the last epoch"
        return said if apart else ""

    def come_together(self, step: ExchangeStep, variables: Sequence[keras.Variable]) -> None:
        """Gives all ranks the same weights, at the end of an epoch."""
        raise NotImplementedError


def _apart(step: ExchangeStep) -> tf.Variable:
    return step.keep("apart", like=tf.TensorSpec([], tf.float64))


def _own(step: ExchangeStep, gradient: Any) -> Any:
    """For the rank's own weights. Without data it has none."""
    if not isinstance(gradient, tf.IndexedSlices):
        return tf.where(step.scale > 0, gradient, 0)
    numbers = tf.where(step.scale > 0, gradient.values, 0)
    return tf.IndexedSlices(numbers, gradient.indices, gradient.dense_shape)


def trained(gradients: Sequence[Any], variables: Sequence[keras.Variable]) -> list[keras.Variable]:
    """The variables that have a gradient."""
    pairs = zip(gradients, variables, strict=True)
    return [variable for gradient, variable in pairs if gradient is not None]


@contextlib.contextmanager
def channels_of_its_own(step: ExchangeStep) -> Iterator[int]:
    """Inside are channels that no collective uses: a message may be under way when a step has
    ended. Once for each optimizer of a step, or where it settles; gives which it is, from 0."""
    number = next(step.notes.setdefault("optimizers", itertools.count()))
    with ops.channels(channels.EDGES.part(number, _MOST_OPTIMIZERS)):
        yield number


def flat(tensors: Sequence[tf.Tensor]) -> tf.Tensor:
    """One after another, as one axis; all of one dtype."""
    return tf.concat([tf.reshape(tensor, [-1]) for tensor in tensors], 0)


def parted(joined: tf.Tensor, like: Sequence[Any]) -> list[tf.Tensor]:
    """What was made :func:`flat`, in the shapes of others."""
    parts = tf.split(joined, [math.prod(one.shape) for one in like])
    return [tf.reshape(part, one.shape) for part, one in zip(parts, like, strict=True)]


def is_due(step: ExchangeStep, steps: int | tf.Tensor) -> tf.Tensor:
    """Whether so many steps have ended with this one, since the first or the last that was."""
    return tf.equal((step.number + 1) % tf.cast(steps, tf.int64), 0)


def where(condition: tf.Tensor, do: Callable[[], None]) -> None:
    """Does what gives nothing, where a step is traced, if the condition holds when it runs."""

    def done() -> tf.Tensor:
        do()
        return tf.constant(True)

    tf.cond(condition, done, lambda: tf.constant(False))


def values(variables: Sequence[keras.Variable]) -> list[tf.Tensor]:
    """What variables hold now."""
    return [tf.identity(tensor_of(variable)) for variable in variables]


def assign_all(variables: Sequence[keras.Variable], tensors: Sequence[tf.Tensor]) -> None:
    for variable, tensor in zip(variables, tensors, strict=True):
        variable.assign(tensor)
