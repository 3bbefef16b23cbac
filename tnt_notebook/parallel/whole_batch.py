"""What sees the samples of all ranks: losses of the whole batch, and ``tnt.ops`` in people's steps.

A rank's loss is weighted by n_r / n (its samples, those of the batch), and so are its gradients.
With values that came from all ranks the chain rule has to undo that weight at the place where they
left their own rank: the gradient that all ranks have for them, summed with the weights n_q / n,
counts n / n_r times there.

A loss is found to be one of the whole batch before training, by trying it: of values that are
drawn by chance, the loss of the whole is compared with that of two parts. For a mean or a sum over
samples they are equal, for Dice, Tversky, Circle or a root of a mean they are not.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tnt_notebook.comm import ops
from tnt_notebook.keras.graph import mask_of, set_mask
from tnt_notebook.parallel.data import Share
from tnt_notebook.parallel.drawn import PART, SECOND_IS_HIGH, TRIED, drawn, rounding
from tnt_notebook.parallel.step import Step


def loss_of_batch(
    step: Step,
    call: Callable[..., Any],
    loss: keras.losses.Loss,
    y_true: Any,
    y_pred: Any,
    sample_weight: Any = None,
) -> Any:
    """Keras's ``Loss.__call__`` on a slice; on all of them, where it needs the whole batch."""
    if step.sees_whole or not mixes_samples(step, call, loss, y_true, y_pred):
        return call(loss, y_true, y_pred, sample_weight)

    def whole(values: Any) -> Any:
        mask = mask_of(values)
        gathered = gather(step, values, same_use=True)
        if mask is not None:
            set_mask(gathered, gather(step, mask))
        return gathered

    given = keras.tree.map_structure(
        lambda leaf: None if leaf is None else whole(leaf), (y_true, y_pred, sample_weight)
    )
    step.sees_whole = True
    try:
        return call(loss, *given)
    finally:
        step.sees_whole = False


def mixes_samples(
    step: Step, call: Callable[..., Any], loss: keras.losses.Loss, y_true: Any, y_pred: Any
) -> bool:
    """Whether a loss is neither a mean nor a sum of losses of samples. Tried on values as these;
    one that cannot be tried is taken for a mean."""
    chance = np.random.default_rng(1)
    leaves = keras.tree.flatten((y_true, y_pred))
    if not all(isinstance(leaf, tf.Tensor) and leaf.shape.rank for leaf in leaves):
        return False
    share, whole_divisor, divisors = step.share, step.whole_divisor, []

    def of_trial(divisor: Any) -> Any:
        divisors.append(divisor)
        return divisor

    with tf.init_scope():
        y, outputs = keras.tree.map_structure(
            lambda leaf: drawn(chance, leaf, SECOND_IS_HIGH), (y_true, y_pred)
        )

        def of_rows(begin: int, end: int) -> float:
            known = iter([*divisors])
            step.whole_divisor = (lambda _: next(known)) if divisors else of_trial
            step.share = Share(end - begin, TRIED, 0)
            rows = keras.tree.map_structure(lambda leaf: tf.constant(leaf[begin:end]), (y, outputs))
            return float(np.sum(keras.ops.convert_to_numpy(call(loss, *rows)), dtype=np.float64))

        try:
            whole, first, rest = of_rows(0, TRIED), of_rows(0, PART), of_rows(PART, TRIED)
        except Exception:  # it wants other values than these; with the real ones it may say why
            return False
        finally:
            step.share, step.whole_divisor = share, whole_divisor
    parts = (PART * first + (TRIED - PART) * rest) / TRIED
    allowed = rounding(loss.dtype not in ("float32", "float64")) * (abs(whole) + 1e-3)
    return math.isfinite(whole + parts) and abs(whole - parts) > allowed


def gather(step: Step, values: tf.Tensor, same_use: bool = False) -> tf.Tensor:
    """The rows of all ranks, in the order of the global batch.

    Args:
        values: this rank's, a row a sample.
        same_use: whether all ranks compute the same of them, so that their gradients are equal and
            need not be exchanged.
    """
    local, begin = tf.cast(step.share.local, tf.int32), step.begin

    @tf.custom_gradient
    def gathered(own: tf.Tensor) -> Any:
        def gradient(of_all: tf.Tensor) -> tf.Tensor:
            if not same_use:
                of_all = _weighted_sum(step, of_all)
            rows = of_all[begin : begin + local] * _unweighted(step, of_all.dtype)
            return tf.concat([rows, tf.zeros_like(own)[local:]], 0)

        return ops.allgather(own[:local], label="allgather of samples", over=step.over), gradient

    return gathered(values)


def total(step: Step, values: tf.Tensor) -> tf.Tensor:
    """The sum over ranks of tensors of one shape; ranks without samples add nothing."""

    @tf.custom_gradient
    def summed(own: tf.Tensor) -> Any:
        def gradient(of_total: tf.Tensor) -> tf.Tensor:
            return _weighted_sum(step, of_total) * _unweighted(step, of_total.dtype)

        counts = tf.cast(step.has_data, tf.float64)
        (result,) = ops.allreduce([own], counts, label="allreduce of sums", over=step.over)
        return result, gradient

    return summed(values)


def _weighted_sum(step: Step, gradient: tf.Tensor) -> tf.Tensor:
    label = "allreduce of the gradient of what ranks share"
    return ops.allreduce([gradient], step.scale, label=label, over=step.over)[0]


def _unweighted(step: Step, dtype: tf.DType) -> tf.Tensor:
    """n / n_r; 0 without data."""
    return tf.cast(tf.math.divide_no_nan(tf.constant(1.0, tf.float64), step.scale), dtype)
