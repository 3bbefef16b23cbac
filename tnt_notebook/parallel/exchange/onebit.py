"""``onebit``: of each element of a gradient its sign travels, what that leaves out comes later."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import keras
import tensorflow as tf

from tnt_notebook.parallel.exchange import Exchange, ExchangeStep
from tnt_notebook.parallel.exchange.feedback import with_feedback
from tnt_notebook.parallel.exchange.qsgd import is_worth_it, sum_of_codes


@dataclass(frozen=True)
class OneBit(Exchange):
    """Each rank sends of its gradients a bit an element, and of each 512 elements the mean of those
    below 0 and that of the others; what that leaves out is added to the next gradient."""

    gives_up: ClassVar[str] = "equality with one process: gradients travel as signs, the rest later"
    source: ClassVar[str] = "Seide et al., 1-bit stochastic gradient descent, Interspeech 2014"

    def gradients(
        self, step: ExchangeStep, gradients: Sequence[Any], variables: Sequence[keras.Variable]
    ) -> list[Any]:
        return with_feedback(step, gradients, variables, lambda v: is_worth_it(None, v), _signs)


def _signs(
    step: ExchangeStep, own: tf.Tensor, variable: keras.Variable
) -> tuple[tf.Tensor, tf.Tensor]:
    return sum_of_codes(step, own, variable, bits=1)
