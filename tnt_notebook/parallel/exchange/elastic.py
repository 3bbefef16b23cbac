"""``elastic``: each rank trains by itself, tied to a common centre by a spring."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import keras
import tensorflow as tf

from tnt_notebook.keras.state import tensor_of
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
class Elastic(LocalUpdates):
    """Synchronous elastic averaging: the optimizer of each rank applies the rank's own gradients;
    after every so many steps its weights move a part of the way to the centre, and the centre
    towards those of all ranks. At the end of an epoch the centre is the weights of all.

    Attributes:
        every: steps between two moves.
        beta: the paper's: a rank moves by ``beta`` over the number of ranks of its distance.
    """

    source: ClassVar[str] = "Zhang, Choromanska, LeCun, EASGD, NeurIPS 2015, equations 5 and 6"

    every: int = 4
    beta: float = 0.9

    def __post_init__(self) -> None:
        if self.every < 1 or not 0 < self.beta <= 1:
            raise ValueError("elastic takes every of at least 1, and beta above 0, at most 1")

    def apply(
        self, step: ExchangeStep, apply: Apply, gradients: Gradients, variables: Variables
    ) -> None:
        own = trained(gradients, variables)
        centres = [self._centre(step, v) for v in own]
        apply(gradients, variables)
        alpha = self.beta / step.over.size

        def move() -> None:
            distances = [v - c for v, c in zip(values(own), centres, strict=True)]
            pulled = [v - alpha * d for v, d in zip(values(own), distances, strict=True)]
            ways = sums(step, distances, own, alpha, "sum of distances")
            for centre, way in zip(centres, ways, strict=True):
                centre.assign_add(way)
            assign_all(own, pulled)

        where(is_due(step, self.every), move)

    def come_together(self, step: ExchangeStep, variables: Sequence[keras.Variable]) -> None:
        assign_all(variables, [self._centre(step, v).read_value() for v in variables])

    def _centre(self, step: ExchangeStep, variable: keras.Variable) -> tf.Variable:
        """It begins where all ranks do."""
        return step.keep("centre", of=variable, initial=lambda: tensor_of(variable).numpy())
