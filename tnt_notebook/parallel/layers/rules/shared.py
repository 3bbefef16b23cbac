"""What the rules of several of Keras's layers share."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import keras
import tensorflow as tf

from tnt_notebook.parallel.layers.rule import PARTIAL, SAME, BlockCall, Gives, LayerCall


def added_once(
    block_call: BlockCall, summand: tf.Tensor, bias: Any, axes: Iterable[str]
) -> tf.Tensor:
    """Adds a bias to one of the summands along some axes."""
    if bias is None:
        return summand
    first = all(block_call.index(axis) == 0 for axis in axes)
    return summand + tf.cast(bias, summand.dtype) * tf.cast(first, summand.dtype)


def summed_up(
    block_call: BlockCall,
    summand: tf.Tensor,
    bias: Any,
    axes: list[str],
    activated: Callable[[tf.Tensor], tf.Tensor],
) -> tf.Tensor:
    """What a layer gives whose product has summands along some axes: a summand, where that is
    enough (see :func:`cut_by_inputs`); else the bias and the activation come after the sum."""
    layer = block_call.layer
    if ends_in_sum(layer):
        return added_once(block_call, summand, bias, axes)
    result = block_call.total(summand, axes)
    if bias is not None:
        result += tf.cast(bias, result.dtype)
    return activated(result)


def cut_by_outputs(layer: Any, dim: int) -> dict[int, Any]:
    """The weights of a layer whose kernel is cut in the dimension of what it gives."""
    return {id(layer.kernel): dim} | ({} if layer.bias is None else {id(layer.bias): 0})


def cut_by_inputs(layer: Any, dim: int) -> tuple[Gives, dict[int, Any]]:
    """The same in that of what it takes; and what it gives then, by :func:`summed_up`."""
    if ends_in_sum(layer):
        return PARTIAL, {id(layer.kernel): dim}
    return None, {id(layer.kernel): dim} | ({} if layer.bias is None else {id(layer.bias): SAME})


def is_channels_last(layer_call: LayerCall) -> bool:
    """Whether it takes one value, without a mask, channels last."""
    last = getattr(layer_call.layer, "data_format", "channels_last") == "channels_last"
    return last and len(layer_call.takes) == 1


def is_adapted(layer: Any) -> bool:
    """Whether it computes something else than its kernel says: with LoRA, or quantized."""
    return bool(getattr(layer, "lora_enabled", False) or getattr(layer, "quantization_mode", None))


def ends_in_sum(layer: Any) -> bool:
    """Whether what it gives is a sum, and nothing is done with that."""
    return layer.activation in (None, keras.activations.linear)
