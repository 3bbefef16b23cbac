"""Values that functions of a stage take and give: each is one tensor, a sparse one too.

A tf.SparseTensor is three tensors. Packed, they are a vector of three variants, which ops carry
along as they are; it has as many rows as there are samples in it only, and no gradient.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf


def packed(value: Any) -> tf.Tensor:
    """A value as one tensor."""
    if not isinstance(value, tf.SparseTensor):
        return value
    return tf.raw_ops.SerializeSparse(
        sparse_indices=value.indices,
        sparse_values=value.values,
        sparse_shape=value.dense_shape,
        out_type=tf.variant,
    )


def unpacked(tensor: tf.Tensor, spec: tf.TensorSpec) -> Any:
    """What was packed; ``spec`` is what its shape and dtype were."""
    if tensor.dtype != tf.variant:
        return tensor
    value = tf.SparseTensor(
        *tf.raw_ops.DeserializeSparse(serialized_sparse=tensor, dtype=spec.dtype)
    )
    value.set_shape(spec.shape)
    return value


def packed_spec(spec: tf.TensorSpec, is_sparse: bool) -> tf.TensorSpec:
    """Of a value that is packed."""
    return tf.TensorSpec((3,), tf.variant) if is_sparse else spec
