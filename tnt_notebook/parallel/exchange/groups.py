"""An exchange where ranks have different weights: over each group that has the same, by itself."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import keras
import tensorflow as tf

from tnt_notebook.comm import Communicator
from tnt_notebook.parallel.exchange import (
    Applied,
    Apply,
    Exchange,
    ExchangeStep,
    Gradients,
    Variables,
)

#: Of variables, for each group of ranks that train the same: those ranks, the places of its
#: variables, and whether several stages have them.
Groups = Callable[[Sequence[keras.Variable]], Iterable[tuple[Communicator, list[int], bool]]]


@dataclass(frozen=True)
class OverGroups(Exchange):
    """What `inner` does, over the groups of ranks that have the same weights.

    Attributes:
        replicas: the ranks that have the same place in each replica.
        own_channels: of the optimizer of a number in a step: inside, channels that ranks with
            other weights do not count.
        scaled: whether a rank's share of the batch is still to be taken into account; gradients of
            a pipeline have their weight in the batch already.
    """

    inner: Exchange
    groups: Groups
    replicas: Communicator
    own_channels: Callable[[int], AbstractContextManager[None]]
    scaled: bool = False

    def gradients(
        self, step: ExchangeStep, gradients: Sequence[Any], variables: Sequence[keras.Variable]
    ) -> list[Any]:
        result = list(gradients)
        for group, chosen, is_shared in self.groups(variables):
            # Of several stages, some may have dense ones, and one process would have had their sum.
            alike = [tf.convert_to_tensor(result[i]) if is_shared else result[i] for i in chosen]
            some = [variables[i] for i in chosen]
            summed = alike
            if group.size > 1 or self.inner.on_one_rank:
                summed = self.inner.gradients(self._over(step, group), alike, some)
            for i, gradient in zip(chosen, summed, strict=True):
                result[i] = gradient
                # Where TensorFlow knows the shape of a gradient, it multiplies it in another order
                # with scalars, and the bits of the weights would differ from rank to rank.
                if not isinstance(gradient, tf.IndexedSlices):
                    result[i] = tf.ensure_shape(gradient, variables[i].shape)
        return result

    def apply(
        self, step: ExchangeStep, apply: Apply, gradients: Gradients, variables: Variables
    ) -> None:
        number = next(step.notes.setdefault("applied", itertools.count()))
        with self.own_channels(number):
            step = dataclasses.replace(step, over=self.replicas)
            self.inner.apply(step, apply, gradients, variables)

    def settle(self, step: ExchangeStep, applied: Sequence[Applied]) -> None:
        def by_group(
            variables: Sequence[keras.Variable],
        ) -> Iterator[tuple[ExchangeStep, list[int]]]:
            for group, chosen, _ in self.groups(variables):
                yield self._over(step, group), chosen

        self.inner.settle(dataclasses.replace(step, by_group=by_group), applied)

    def _over(self, step: ExchangeStep, group: Communicator) -> ExchangeStep:
        scale = step.scale if self.scaled else tf.constant(1.0, tf.float64)
        return dataclasses.replace(step, over=group, scale=scale)
