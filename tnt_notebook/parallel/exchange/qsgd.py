"""``qsgd``: gradients travel in a few bits an element, rounded by chance."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import keras
import tensorflow as tf

from tnt_notebook.comm import codes, ops
from tnt_notebook.parallel.exchange import Exchange, ExchangeStep
from tnt_notebook.parallel.exchange.allreduce import Allreduce

#: Elements below which a gradient travels whole.
SMALL = 256


@dataclass(frozen=True)
class Qsgd(Exchange):
    """Each rank sends its gradients to all others, in a few bits an element: as levels of the
    largest in each 512, rounded up or down by chance, so that the mean is right.

    Attributes:
        bits: 2, 4 or 8, of an element.
    """

    gives_up: ClassVar[str] = "equality with one process: gradients are rounded to a few bits"
    source: ClassVar[str] = "Alistarh et al., QSGD, NIPS 2017"

    bits: int = 4

    def __post_init__(self) -> None:
        if self.bits not in codes.WIDTHS[1:]:
            raise ValueError(f"bits is 2, 4 or 8, not {self.bits}")

    def gradients(
        self, step: ExchangeStep, gradients: Sequence[Any], variables: Sequence[keras.Variable]
    ) -> list[Any]:
        result = list(gradients)
        chosen = [i for i, g in enumerate(gradients) if is_worth_it(g, variables[i])]
        others = [i for i in range(len(result)) if i not in chosen]
        whole = Allreduce().gradients(
            step, [gradients[i] for i in others], [variables[i] for i in others]
        )
        for i, gradient in zip(others, whole, strict=True):
            result[i] = gradient
        for i in reversed(chosen):  # as backpropagation gives them
            gradient = tf.convert_to_tensor(gradients[i])
            # A NaN of a rank's borrowed sample times 0 would still be a NaN.
            own = tf.where(step.scale > 0, gradient * tf.cast(step.scale, gradient.dtype), 0)
            result[i], _ = sum_of_codes(step, own, variables[i], self.bits, i)
        return result


def is_worth_it(gradient: Any, variable: keras.Variable) -> bool:
    """Whether codes of a gradient take much less than it."""
    return not isinstance(gradient, tf.IndexedSlices) and math.prod(variable.shape) >= SMALL


def sum_of_codes(
    step: ExchangeStep, own: tf.Tensor, variable: keras.Variable, bits: int, place: int = 0
) -> tuple[tf.Tensor, tf.Tensor]:
    """The sum over ranks of what their codes stand for, and what those of this rank leave out.

    Args:
        own: in the shape of the variable.
        place: a number that tells the variable from others, for their chance.
    """
    numbers = tf.reshape(tf.cast(own, tf.float32), variable.shape)
    seed = (step.number * step.over.size + step.over.rank) * 1009 + place
    encoded, left = codes.encode(numbers, bits, seed)
    label = f"codes of the gradient of {variable.path}"
    everyones = ops.allgather(encoded, label=label, over=step.over)
    total = codes.decode_sum(everyones, numbers, bits)
    return tf.cast(total, own.dtype), tf.cast(left, own.dtype)
