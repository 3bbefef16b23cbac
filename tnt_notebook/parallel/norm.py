"""Batch-norm statistics of the global batch, for ``BatchNormalization(synchronized=True)``."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from tnt_notebook.comm import ops
from tnt_notebook.parallel.step import Step


def global_moments(step: Step) -> Callable[..., Any]:
    """Mean and variance for a layer of Keras, over all ranks of this world."""
    present = functools.partial(tf.cast, step.has_data)
    return moments_by(functools.partial(sum_over_ranks, step), present)


def moments_by(
    summed: Callable[[tf.Tensor], tf.Tensor],
    present: Callable[[tf.DType], Any] = lambda dtype: 1,
) -> Callable[..., Any]:
    """Mean and variance of parts: in two exchanges, the mean first, then the squared distances from
    it, which loses no digits where the mean is large.

    Args:
        summed: the sum over parts.
        present: 1 where this part counts, else 0.
    """

    def moments(x: tf.Tensor, axes: Any, keepdims: bool) -> tuple[tf.Tensor, tf.Tensor]:
        here = present(x.dtype)
        count = tf.cast(tf.size(x), x.dtype) * here
        channels = tf.cast(tf.size(tf.reduce_sum(x, axis=axes)), x.dtype)
        count = summed(count / channels)
        total = summed(here * tf.reduce_sum(x, axis=axes, keepdims=True))
        mean = total / count
        distance = tf.reduce_sum(tf.square(x - mean), axis=axes, keepdims=True)
        variance = summed(here * distance) / count
        if not keepdims:
            mean, variance = tf.squeeze(mean, axes), tf.squeeze(variance, axes)
        return mean, variance

    return moments


def sum_over_ranks(step: Step, x: tf.Tensor) -> tf.Tensor:
    """A sum over ranks that gradients flow through. The gradient that a rank computes is later
    weighted by its share of the batch: so what comes back to rank r from rank s is weighted by
    share_s / share_r here, and leaves as share_s."""
    share = tf.cast(step.scale, x.dtype)

    @tf.custom_gradient
    def summed(value: tf.Tensor) -> tuple[tf.Tensor, Callable[[tf.Tensor], tf.Tensor]]:
        def gradient(upstream: tf.Tensor) -> tf.Tensor:
            (weighted,) = ops.allreduce(
                [upstream], step.scale, label="allreduce of batch-norm gradients", over=step.over
            )
            return tf.math.divide_no_nan(weighted, share)

        (whole,) = ops.allreduce(
            [value], label="allreduce of batch-norm statistics", over=step.over
        )
        return whole, gradient

    return summed(x)
