"""Losses on a slice that add up to the loss of the global batch.

The gradients of the ranks are averaged with weights n_r / n (samples of the rank, of the batch).
That is right for a loss that divides by the number of samples. Others are corrected by a factor:

    one process    S / D,  with S and D summed over the batch
    rank r         S_r / D_r * (D_r / D) * (n / n_r),  which weighted by n_r / n adds up to S / D

``D`` is 1 for a sum, the number of valid entries under a mask, and the sum of weights for
``mean_with_sample_weight``; the last two are exchanged in the forward pass, a few bytes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from tnt_notebook.comm import ops
from tnt_notebook.keras.losses import masked_weights
from tnt_notebook.parallel.step import Step


def global_reduction(
    step: Step,
    reduce_weighted_values: Callable[..., Any],
    values: Any,
    sample_weight: Any = None,
    mask: Any = None,
    reduction: str | None = "sum_over_batch_size",
    dtype: Any = None,
) -> Any:
    """Keras's ``reduce_weighted_values``, for a slice of a global batch."""
    loss = reduce_weighted_values(values, sample_weight, mask, reduction, dtype)
    if step.sees_whole or len(values.shape) == 0:
        return loss  # of the whole batch, or reduced already by the user's own function: a mean
    factor = _factor(step, values, sample_weight, mask, reduction)
    return loss if factor is None else loss * tf.cast(factor, loss.dtype)


def _factor(
    step: Step, values: Any, sample_weight: Any, mask: Any, reduction: str | None
) -> tf.Tensor | None:
    local = tf.cast(tf.maximum(step.share.local, 1), tf.float64)
    more = tf.cast(step.share.total, tf.float64) / local
    if reduction in ("sum", "none", None):
        return more
    if reduction == "mean_with_sample_weight" and (sample_weight is not None or mask is not None):
        weights = masked_weights(sample_weight, mask, values.dtype, reduction)
        return more * _share(step, tf.reduce_sum(tf.cast(weights, tf.float64)))
    if mask is not None:
        return more * _share(step, tf.reduce_sum(tf.cast(mask, tf.float64)))
    return None


def _share(step: Step, divisor: tf.Tensor) -> tf.Tensor:
    """This rank's part of the divisor of the global batch."""
    divisor = tf.where(step.has_data, tf.stop_gradient(divisor), 0.0)
    if step.whole_divisor is not None:
        whole = step.whole_divisor(divisor)
    else:
        (whole,) = ops.allreduce([divisor], label="allreduce of a loss's divisor", over=step.over)
    return tf.math.divide_no_nan(divisor, whole)
