"""TensorFlow's random state of this process. The same from TensorFlow 2.16 to 2.21."""

from __future__ import annotations

from typing import Any

import tensorflow as tf
from tensorflow.python.eager import context as eager


def seed() -> int | None:
    """The seed that was given to ``tf.random.set_seed``."""
    return eager.global_seed()


def operations() -> tuple[Any, ...]:
    """The state of the generator that gives ops without a seed their own: as that of Python's
    ``random.Random``."""
    return eager.context()._rng.getstate()


def set_seed(seed: int, operations: tuple[Any, ...], anew: bool = False) -> None:
    """Makes these the random state.

    Args:
        anew: also where the seed is the same TensorFlow forgets what was drawn with it.
    """
    if eager.global_seed() != seed or anew:
        tf.random.set_seed(seed)
    eager.context()._rng.setstate(operations)
