"""Models, and what a LayoutMap says of their weights."""

from typing import Any

import keras
import numpy as np

L, kd = keras.layers, keras.distribution
GRID = ("batch", "model")


def layout_map(
    shape: tuple[int, ...], axes: tuple[str, ...], layouts: dict[str, Any], devices: Any = None
) -> Any:
    """A LayoutMap on a mesh of devices; default: CPUs, as many as it has."""
    if devices is None:
        devices = [f"cpu:{number}" for number in range(np.prod(shape))]
    made = kd.LayoutMap(kd.DeviceMesh(shape, axes, devices))
    for key, axes_of in layouts.items():
        made[key] = axes_of
    return made


def mlp() -> keras.Model:
    first = L.Dense(6, "relu", name="first")
    return keras.Sequential(
        [keras.Input((4,)), first, L.Dense(5, name="second"), L.Dense(3, name="third")], name="mlp"
    )


def mixed() -> keras.Model:
    """With a convolution, attention and an EinsumDense."""
    x = keras.Input((6, 6, 2))
    y = L.Reshape((16, 4))(L.Conv2D(4, 3, activation="relu", name="conv")(x))
    y = L.Add()([y, L.MultiHeadAttention(3, 2, name="attention")(y, y)])
    y = L.EinsumDense("abc,cd->abd", (None, 5), bias_axes="d", name="einsum")(y)
    return keras.Model(x, L.Dense(3, name="dense")(L.GlobalAveragePooling1D()(y)))


MIXED = {
    "conv/kernel": (None, None, None, "model"), "conv/bias": ("model",),
    "attention/(query|key|value)/kernel": (None, "model", None),
    "attention/(query|key|value)/bias": ("model", None),
    "attention/attention_output/kernel": ("model", None, None),
    "einsum.*kernel": (None, "model"), "einsum.*bias": ("model",), "dense/kernel": ("model", None),
}  # fmt: skip
