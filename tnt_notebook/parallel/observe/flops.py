"""How many floating-point operations a model asks for, where that is known.

Of matrix products and convolutions, two for each multiplication and addition; what else layers do
is little beside it. A training step needs three times those of the forward pass: backward computes
two gradients (Narayanan et al. 2021, "Efficient Large-Scale Language Model Training on GPU
Clusters", 5.1).
"""

from __future__ import annotations

import math
from typing import Any

import keras
from keras import layers

from tnt_notebook.keras.graph import functional_of, times_called

#: Layers whose kernel is applied to every position of their output.
_CONVOLUTIONS = (
    layers.Conv1D, layers.Conv2D, layers.Conv3D, layers.DepthwiseConv1D, layers.DepthwiseConv2D,
)  # fmt: skip
#: Layers with weights whose products are too few to count.
_CHEAP = (
    layers.BatchNormalization, layers.LayerNormalization, layers.GroupNormalization,
    layers.UnitNormalization, layers.Embedding, layers.PReLU, layers.Normalization,
)  # fmt: skip


def forward_flops(model: keras.Model) -> int | None:
    """Of one sample; None if some layer's are not known, or shapes are not fixed."""
    total = 0
    for layer in getattr(model, "layers", []):
        flops = _of(layer, model)
        if flops is None:
            return None
        total += flops
    return total or None


def _of(layer: Any, model: keras.Model) -> int | None:
    if isinstance(layer, keras.Model):
        return forward_flops(layer)
    if not layer.weights or isinstance(layer, _CHEAP):
        return 0
    graph = functional_of(model)
    if graph is None:
        return None
    try:
        shape = layer.output.shape[1:]
    except (AttributeError, ValueError):  # it was never called on a symbol
        return None
    applied = times_called(layer, graph)
    if None in shape:
        return None
    if isinstance(layer, layers.Dense):
        return 2 * applied * math.prod(layer.kernel.shape) * math.prod(shape[:-1])
    if type(layer) in _CONVOLUTIONS:
        positions = shape[:-1] if layer.data_format == "channels_last" else shape[1:]
        return 2 * applied * math.prod(layer.kernel.shape) * math.prod(positions)
    return None
