"""What a step says of its values that its ops do not tell: which gradients an exchange takes, and
what a rank computes of its own samples alone.

::

    x (rows) -> own samples alone: mean, variance -> (own) ...... x * own (rows)
    gradient <- ................................. <- (its part) . gradients of rows
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from tnt_notebook.keras.copied import marked

EXCHANGED, EXCHANGED_SLICES = "exchanged", "exchanged slices"
ENTERED, GRADIENT_OF_ENTERED = "entered", "gradient of entered"
LEFT, GRADIENT_OF_LEFT = "left", "gradient of left"


def for_exchange(gradient: Any) -> Any:
    """A gradient as an exchange takes it: this rank's summand of that of the batch."""
    if isinstance(gradient, tf.IndexedSlices):
        values, indices = marked([gradient.values, gradient.indices], EXCHANGED_SLICES)
        return tf.IndexedSlices(values, indices, gradient.dense_shape)
    return marked([tf.convert_to_tensor(gradient)], EXCHANGED)[0]


def of_own_samples(
    compute: Callable[..., Sequence[tf.Tensor]], values: tf.Tensor, mask: tf.Tensor | None
) -> list[tf.Tensor]:
    """What ``compute`` makes of values and their mask, of a rank's samples alone."""
    masks = [] if mask is None else marked([mask], ENTERED)
    return list(_leave(*compute(_enter(values), *masks)))


@tf.custom_gradient
def _enter(values: tf.Tensor) -> Any:
    def gradient(upstream: tf.Tensor) -> tf.Tensor:
        return marked([upstream, values], GRADIENT_OF_ENTERED)[0]

    return marked([values], ENTERED)[0], gradient


@tf.custom_gradient
def _leave(*values: tf.Tensor) -> Any:
    def gradient(*upstream: tf.Tensor) -> Sequence[tf.Tensor]:
        return marked(upstream, GRADIENT_OF_LEFT)

    return marked(values, LEFT), gradient
