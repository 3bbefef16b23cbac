"""The default exchange: the weighted mean of all ranks' gradients, bucket by bucket."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import keras
import tensorflow as tf

from tnt_notebook.comm import World, ops
from tnt_notebook.parallel.exchange import Exchange
from tnt_notebook.parallel.exchange.buckets import MIB, BucketSizes, plan
from tnt_notebook.parallel.exchange.rows import are_distinct, summed_by_row


def chosen_exchange(exchange: Exchange | None, bucket_mb: float | None) -> Exchange:
    """The exchange that a person has asked for, by itself or by the size of its buckets."""
    if exchange is not None and bucket_mb is not None:
        raise ValueError("bucket_mb is for the default exchange: give one of exchange, bucket_mb")
    return exchange or bucketed_allreduce(bucket_mb)


def bucketed_allreduce(bucket_mb: float | None = None, wire: str | None = None) -> Exchange:
    """An exchange that sums dense gradients in buckets and concatenates sparse ones.

    Args:
        bucket_mb: the largest size of a bucket in MiB.
        wire: the float dtype in which dense gradients travel and are summed; ``"bfloat16"`` halves
            what float32 gradients send, at the price of equality with one process.
    """
    if bucket_mb is not None and not bucket_mb > 0:
        raise ValueError(f"bucket_mb must be positive, not {bucket_mb}")
    caps = BucketSizes() if bucket_mb is None else BucketSizes(cap=int(bucket_mb * MIB))

    def exchange(
        gradients: Sequence[Any], variables: Sequence[keras.Variable], scale: tf.Tensor, over: World
    ) -> list[Any]:
        result = list(gradients)
        dense = [i for i, g in enumerate(gradients) if not isinstance(g, tf.IndexedSlices)]
        tensors = [tf.convert_to_tensor(gradients[i]) for i in dense]
        sizes = [
            math.prod(variables[i].shape) * tensor.dtype.size
            for i, tensor in zip(dense, tensors, strict=True)
        ]
        kinds = [tensor.dtype.name for tensor in tensors]
        for number, bucket in enumerate(plan(sizes, kinds, caps)):
            names = ", ".join(variables[dense[k]].path for k in bucket)
            summed = ops.allreduce(
                [tensors[k] for k in bucket],
                scale,
                label=f"allreduce of bucket {number} ({names})",
                over=over,
                wire=wire,
            )
            for k, tensor in zip(bucket, summed, strict=True):
                result[dense[k]] = tensor
        for i, gradient in enumerate(gradients):
            if isinstance(gradient, tf.IndexedSlices):
                result[i] = _concatenate(gradient, scale, variables[i].path, over)
        return result

    return exchange


def _concatenate(
    gradient: tf.IndexedSlices, scale: tf.Tensor, path: str, over: World
) -> tf.IndexedSlices:
    """The slices of all ranks one after another: what one process would have had."""
    # A rank without data has computed on a borrowed sample, and leaves its slices out.
    rows = tf.where(scale > 0, tf.shape(gradient.indices)[0], 0)
    values = gradient.values[:rows] * tf.cast(scale, gradient.values.dtype)
    all_of_them = tf.IndexedSlices(
        ops.allgather(values, label=f"allgather of the gradient of {path}", over=over),
        ops.allgather(gradient.indices[:rows], label=f"allgather of rows of {path}", over=over),
        gradient.dense_shape,
    )
    return summed_by_row(all_of_them) if are_distinct(gradient) else all_of_them
