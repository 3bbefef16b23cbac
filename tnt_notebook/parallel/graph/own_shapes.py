"""Shapes of what a rank has of a value: of one dimension, those of its samples."""

from __future__ import annotations

import numpy as np
import tensorflow as tf


def by_samples_beside(counts: np.ndarray | None, dim: int) -> bool:
    """Whether samples count in numbers of a shape beside that of the dimension that has them, or
    may, for all that is known."""
    return counts is None or any(
        each is None or each.rows for i, each in enumerate(counts) if i != dim
    )


def with_size(shape: tf.Tensor, dim: int, size: tf.Tensor) -> tf.Tensor:
    """A shape with another size in one dimension."""
    return tf.tensor_scatter_nd_update(shape, [[dim]], [tf.cast(size, shape.dtype)])
