"""Values drawn by chance, on which losses, steps and layers are tried before training."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

#: Samples on which losses and layers are tried, and of their first part; those of the second are
#: larger, so that the two parts differ much.
TRIED, PART = 8, 3
SECOND_IS_HIGH = np.arange(TRIED) >= PART
#: How far values may be apart, as a part of the largest; in half precision more.
ROUNDING, _ROUNDING_IN_HALF = 1e-4, 3e-2
#: What stands for an axis of unknown length.
_LENGTH = 5


def rounding(in_half: bool) -> float:
    """How far values may be apart, as a part of the largest: computed in half precision or not."""
    return _ROUNDING_IN_HALF if in_half else ROUNDING


def drawn(
    chance: np.random.Generator, like: Any, high: np.ndarray, low_is_zero: bool = False
) -> np.ndarray:
    """Numbers that serve as labels and as probabilities alike, or the texts "a" and "b".

    Args:
        like: a tensor or its spec, of samples along the first axis.
        high: by sample whether its floats are larger than others', bool [samples].
        low_is_zero: whether integers of the other samples are all 0, and texts "a".

    Returns:
        As many samples, in the dtype of ``like``; text as NumPy's.
    """
    shape = [len(high), *(_LENGTH if length is None else length for length in like.shape[1:])]
    of_sample = high.reshape(-1, *(1 for _ in shape[1:]))
    if like.dtype.is_floating:
        numbers = chance.uniform(0.1, 0.4, shape) + 0.5 * of_sample
        return numbers.astype(like.dtype.as_numpy_dtype)
    zeros_and_ones = chance.integers(0, 2, shape) * (of_sample if low_is_zero else 1)
    if like.dtype == tf.string:
        return np.array(["a", "b"])[zeros_and_ones]
    return zeros_and_ones.astype(like.dtype.as_numpy_dtype)
