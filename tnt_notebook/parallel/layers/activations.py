"""What activations compute each number by itself, and which look at the last dimension."""

from __future__ import annotations

from typing import Any

import keras


def is_known(activation: Any) -> bool:
    """Whether an activation is one of Keras's own, which compute each number by itself, or look at
    the last dimension."""
    name = getattr(activation, "__name__", "")
    return activation is None or getattr(keras.activations, name, None) is activation


def is_elementwise(activation: Any) -> bool:
    """Whether it is one of those that compute each number by itself."""
    return activation is None or (is_known(activation) and activation.__name__ in _ELEMENTWISE)


_ELEMENTWISE = frozenset((
    "celu", "elu", "exponential", "gelu", "hard_shrink", "hard_sigmoid", "hard_silu", "hard_tanh",
    "leaky_relu", "linear", "log_sigmoid", "mish", "relu", "relu6", "selu", "sigmoid", "silu",
    "soft_shrink", "softplus", "softsign", "sparse_plus", "sparse_sigmoid", "squareplus", "swish",
    "tanh", "tanh_shrink", "threshold",
))  # fmt: skip
