"""``local``: each rank trains by itself, and now and then all take the mean of their weights."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import keras
import tensorflow as tf

from tnt_notebook.comm import ops
from tnt_notebook.parallel.exchange import Apply, ExchangeStep, Gradients, Variables
from tnt_notebook.parallel.exchange.allreduce import sums
from tnt_notebook.parallel.exchange.local_updates import (
    LocalUpdates,
    assign_all,
    is_due,
    trained,
    values,
    where,
)


@dataclass(frozen=True)
class Local(LocalUpdates):
    """Local SGD: the optimizer of each rank applies the rank's own gradients; after every so many
    steps the ranks take the mean of their weights, weighted by the samples that each has learnt
    from since. At the end of an epoch they do so too, and take that of what optimizers keep.

    Attributes:
        every: steps between two means.
        from_step: the step from which on ranks are apart; before it they take the mean after each
            (post-local SGD).
    """

    source: ClassVar[str] = "Stich, Local SGD, ICLR 2019; Lin et al., post-local SGD, ICLR 2020"

    every: int = 8
    from_step: int = 0

    def __post_init__(self) -> None:
        if self.every < 1 or self.from_step < 0:
            raise ValueError("local takes every of at least 1, and from_step of at least 0")

    def apply(
        self, step: ExchangeStep, apply: Apply, gradients: Gradients, variables: Variables
    ) -> None:
        apply(gradients, variables)
        own = trained(gradients, variables)
        self._learnt(step, own).assign_add(step.scale)
        where(self.meets(step), lambda: self.come_together(step, own))

    def meets(self, step: ExchangeStep) -> tf.Tensor:
        return is_due(step, tf.where(step.number < self.from_step, 1, self.every))

    def come_together(self, step: ExchangeStep, variables: Sequence[keras.Variable]) -> None:
        learnt = self._learnt(step, variables)
        label = "allreduce of shares of the samples"
        (steps,) = ops.allreduce([learnt.read_value()], label=label, over=step.over)
        # Right after a mean all have the same weights.
        part = tf.where(steps > 0, learnt / steps, 1 / step.over.size)
        assign_all(variables, sums(step, values(variables), variables, part, "mean of weights"))
        learnt.assign(0.0)

    def _learnt(self, step: ExchangeStep, variables: Sequence[keras.Variable]) -> tf.Variable:
        """The shares of the samples of all steps since the last mean."""
        return step.keep("learnt", of=variables[0], like=step.scale)
