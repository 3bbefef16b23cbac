"""Attention by heads: each rank has some of them, and summands of the output (Shoeybi et al.,
Megatron-LM, 2019)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import keras
import tensorflow as tf

from tnt_notebook.keras.attention import dropout_of, is_gated, projections
from tnt_notebook.parallel.layers.rule import (
    PARTIAL,
    BlockCall,
    Cut,
    LayerCall,
    Shape,
    Way,
    changed,
    rule,
)
from tnt_notebook.parallel.layers.rules.shared import added_once, is_adapted


def _run(block_call: BlockCall) -> list[Any]:
    axes = block_call.axes("heads")
    (query, key, _), output = projections(block_call.layer)
    bias = output.bias
    heads, shared_heads = int(query.kernel.shape[1]), int(key.kernel.shape[1])
    with changed(output, bias=None), changed(block_call.layer, **_dropout(block_call, axes)):
        (summand,) = block_call.plain(
            _num_heads=heads, num_query_heads=heads, num_key_value_heads=shared_heads
        )
    return [added_once(block_call, summand, bias, axes)]


def _dropout(block_call: BlockCall, axes: list[str]) -> dict[str, Any]:
    """In the place of the layer that drops scores of heads: that of all heads, as it is."""
    name, dropout = dropout_of(block_call.layer)
    heads = _heads_of(block_call.layer)

    def dropped(scores: tf.Tensor, training: bool | None = None) -> tf.Tensor:
        if not training:
            return scores
        shape = tf.shape(scores)
        whole = tf.ones([shape[0], heads, *tf.unstack(shape[2:])], scores.dtype)
        whole.set_shape([None, heads, *scores.shape[2:]])
        kept = block_call.drawn(lambda x: dropout(x, training=True), whole, [(1, a) for a in axes])
        return scores * kept

    return {name: dropped}


def _of_heads(layer_call: LayerCall) -> Iterator[Way]:
    inner, output = projections(layer_call.layer)
    if (
        len(layer_call.gives) > 1
        or is_gated(layer_call.layer)
        or any(map(is_adapted, (*inner, output)))
    ):
        return
    weights: dict[int, Any] = {id(output.kernel): 0}
    for one in inner:
        weights[id(one.kernel)] = 1
        if one.bias is not None:
            weights[id(one.bias)] = 0
    yield Way(
        "heads", [_by_heads(layer_call, shape) for shape in layer_call.takes], [PARTIAL], weights
    )


def _by_heads(layer_call: LayerCall, shape: Shape) -> Cut | None:
    """How a mask is cut that says something else of each head: it has a dimension more."""
    is_mask = len(shape) > len(layer_call.takes[0])
    return Cut(1) if is_mask and shape[1] == _heads_of(layer_call.layer) else None


def _heads_of(layer: Any) -> int:
    """How many heads queries have."""
    return int(getattr(layer, "num_query_heads", None) or layer.num_heads)


@rule(keras.layers.MultiHeadAttention, run=_run)
def attention(layer_call: LayerCall, parts: int) -> Iterator[Way]:
    if layer_call.layer.num_heads >= parts:
        yield from _of_heads(layer_call)


@rule(keras.layers.GroupQueryAttention, run=_run)
def grouped_attention(layer_call: LayerCall, parts: int) -> Iterator[Way]:
    """Heads of queries stay with the heads of keys and values that they share."""
    if (
        layer_call.layer.num_key_value_heads % parts
        == layer_call.layer.num_query_heads % parts
        == 0
    ):
        yield from _of_heads(layer_call)
