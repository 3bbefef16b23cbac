"""``allreduce``: the weighted mean of all ranks' gradients, bucket by bucket. The default."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import keras
import tensorflow as tf

from tnt_notebook.comm import Communicator, ops
from tnt_notebook.parallel.exchange import Exchange, ExchangeStep
from tnt_notebook.parallel.exchange.sparse_rows import are_distinct, summed_by_row
from tnt_notebook.plan.buckets import BucketSizes, buckets_of
from tnt_notebook.plan.traffic import WIRE_BYTES

#: What gradients may travel as.
WIRES = (*WIRE_BYTES,)


@dataclass(frozen=True)
class Allreduce(Exchange):
    """Sums dense gradients over the ranks in buckets, while others are still being computed, and
    concatenates sparse ones.

    Attributes:
        wire: the float dtype in which dense gradients travel and are summed; by default their own.
            ``bfloat16`` and ``float16`` halve what float32 gradients send, and round them: then
            training is no longer equal to that on one process.
        bucket_mb: the largest size of a bucket in MiB.
    """

    source: ClassVar[str] = (
        "Sergeev and Del Balso, Horovod, 2018; Li et al., PyTorch Distributed, 2020"
    )

    wire: str | None = None
    bucket_mb: float | None = None

    def __post_init__(self) -> None:
        if self.bucket_mb is not None and not self.bucket_mb > 0:
            raise ValueError(f"bucket_mb must be positive, not {self.bucket_mb}")
        if self.wire is not None and self.wire not in WIRES:
            raise ValueError(f"wire is one of {', '.join(WIRES)}, not {self.wire!r}")

    def gradients(
        self, step: ExchangeStep, gradients: Sequence[Any], variables: Sequence[keras.Variable]
    ) -> list[Any]:
        if step.over.size == 1:
            return list(gradients)
        result = list(gradients)
        dense = [i for i, g in enumerate(gradients) if not isinstance(g, tf.IndexedSlices)]
        tensors = [tf.convert_to_tensor(gradients[i]) for i in dense]
        of = [variables[i] for i in dense]
        caps = BucketSizes.of(self.bucket_mb)
        summed = sums(step, tensors, of, step.scale, "allreduce", caps, self.wire)
        for i, tensor in zip(dense, summed, strict=True):
            result[i] = tensor
        for i, gradient in enumerate(gradients):
            if isinstance(gradient, tf.IndexedSlices):
                put_together = _summed if id(variables[i]) in step.alike else _concatenate
                result[i] = put_together(gradient, step.scale, variables[i].path, step.over)
        return result


def sums(
    step: ExchangeStep,
    tensors: Sequence[tf.Tensor],
    variables: Sequence[keras.Variable],
    scale: tf.Tensor | float,
    what: str,
    caps: BucketSizes | None = None,
    wire: str | None = None,
) -> list[tf.Tensor]:
    """Of ``scale * tensor`` over the ranks, of each tensor; in buckets.

    Args:
        tensors: in the shapes of the variables.
        what: is done, for messages.
        caps, wire: of the buckets, and the dtype in which they travel.
    """
    result = list(tensors)
    pairs = zip(tensors, variables, strict=True)
    sizes = [math.prod(variable.shape) * tensor.dtype.size for tensor, variable in pairs]
    kinds = [tensor.dtype.name for tensor in tensors]
    for number, bucket in enumerate(buckets_of(sizes, kinds, caps)):
        names = ", ".join(variables[i].path for i in bucket)
        label = f"{what} of bucket {number} ({names})"
        given = [tensors[i] for i in bucket]
        summed = ops.allreduce(given, scale, label=label, over=step.over, wire=wire)
        for i, tensor in zip(bucket, summed, strict=True):
            result[i] = tensor
    return result


def _summed(
    gradient: tf.IndexedSlices, scale: tf.Tensor, path: str, over: Communicator
) -> tf.IndexedSlices:
    """Of slices that all ranks have: what one process would have had."""
    label = f"allreduce of the gradient of {path}"
    (values,) = ops.allreduce([gradient.values], scale, label=label, over=over)
    return tf.IndexedSlices(values, gradient.indices, gradient.dense_shape)


def _concatenate(
    gradient: tf.IndexedSlices, scale: tf.Tensor, path: str, over: Communicator
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
