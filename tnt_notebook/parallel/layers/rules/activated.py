"""Activations of what a layer has computed, where these look at a dimension that is cut."""

from __future__ import annotations

from typing import Any

import keras
import tensorflow as tf

from tnt_notebook.keras.losses import set_logits
from tnt_notebook.parallel.layers.activations import is_elementwise
from tnt_notebook.parallel.layers.rule import BlockCall
from tnt_notebook.parallel.layers.softmax import softmax

#: What looks at the last dimension, and can be computed where this is cut.
OF_LAST = (keras.activations.softmax, keras.activations.log_softmax)


def activated(block_call: BlockCall, x: tf.Tensor, axes: list[str]) -> tf.Tensor:
    """A layer's activation of what it has computed, of which some axes cut the last dimension."""
    activation = block_call.layer.activation
    if not axes or is_elementwise(activation):
        return x if activation is None else activation(x)
    log = activation is keras.activations.log_softmax
    label = f"softmax of {block_call.layer.name}"
    result = softmax(x, [len(x.shape) - 1], block_call.group(axes), label, log)
    if not log:
        set_logits(result, x)
    return result


def is_known(activation: Any) -> bool:
    """Whether :func:`activated` can compute it."""
    return is_elementwise(activation) or activation in OF_LAST
