"""``elastic``: each rank trains by itself, tied to a common centre by a spring."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import keras
import tensorflow as tf

from tnt_notebook.keras.state import tensor_of
from tnt_notebook.parallel.exchange import Applied, Apply, Exchange, ExchangeStep
from tnt_notebook.parallel.exchange.apart import (
    assign_all,
    average_state,
    meet_every,
    own_gradients,
    sums,
    values,
)


@dataclass(frozen=True)
class Elastic(Exchange):
    """Synchronous elastic averaging: the optimizer of each rank applies the rank's own gradients;
    after every so many steps its weights move a part of the way to the centre, and the centre
    towards those of all ranks. At the end of an epoch the centre is the weights of all.

    Attributes:
        every: steps between two moves.
        beta: the paper's: a rank moves by ``beta`` over the number of ranks of its distance.
    """

    gives_up: ClassVar[str] = "equality with one process, and within an epoch that of the ranks"
    source: ClassVar[str] = "Zhang, Choromanska, LeCun, EASGD, NeurIPS 2015, equations 5 and 6"
    settles: ClassVar[bool] = True
    keeps_ranks_equal: ClassVar[bool] = False

    every: int = 4
    beta: float = 0.9

    def __post_init__(self) -> None:
        if self.every < 1 or not 0 < self.beta <= 1:
            raise ValueError("elastic takes every of at least 1, and beta above 0, at most 1")

    def gradients(
        self, step: ExchangeStep, gradients: Sequence[Any], variables: Sequence[keras.Variable]
    ) -> list[Any]:
        return own_gradients(step, gradients)

    def apply(
        self,
        step: ExchangeStep,
        apply: Apply,
        gradients: Sequence[Any],
        variables: Sequence[keras.Variable],
    ) -> None:
        trained = [v for g, v in zip(gradients, variables, strict=True) if g is not None]
        centres = [self._centre(step, v) for v in trained]
        apply(gradients, variables)
        alpha = self.beta / step.over.size

        def move() -> None:
            apart = [v - c for v, c in zip(values(trained), centres, strict=True)]
            pulled = [v - alpha * d for v, d in zip(values(trained), apart, strict=True)]
            for centre, way in zip(centres, sums(step, apart, alpha, "distances"), strict=True):
                centre.assign_add(way)
            assign_all(trained, pulled)

        meet_every(step, self.every, move)

    def settle(self, step: ExchangeStep, applied: Sequence[Applied]) -> None:
        for one in applied:
            assign_all(one.variables, [self._centre(step, v).read_value() for v in one.variables])
        average_state(step, applied)

    def _centre(self, step: ExchangeStep, variable: keras.Variable) -> tf.Variable:
        """It begins where all ranks do."""
        with tf.init_scope():
            start = tensor_of(variable).numpy()
        return step.keep("centre", of=variable, initial=start)
