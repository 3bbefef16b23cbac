"""The projections inside of attention layers. The same from Keras 3.10 to 3.15."""

from __future__ import annotations

from typing import Any

import keras


def projections(layer: keras.Layer) -> tuple[list[Any], Any]:
    """Of MultiHeadAttention or GroupQueryAttention: the EinsumDense layers of query, key and value,
    whose kernels are [inputs, heads, size] and biases [heads, size], and that of the output, whose
    kernel is [heads, size, outputs]."""
    return [layer._query_dense, layer._key_dense, layer._value_dense], layer._output_dense


def is_gated(layer: keras.Layer) -> bool:
    """Whether a gate, another projection, multiplies what its heads give."""
    return bool(getattr(layer, "_use_gate", False) or getattr(layer, "use_gate", False))


def dropout_of(layer: keras.Layer) -> tuple[str, keras.layers.Dropout]:
    """The name of the attribute that drops scores, and the layer that it is."""
    return "_dropout_layer", layer._dropout_layer
