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
    Cut,
    Local,
    Shape,
    Site,
    Way,
    added_once,
    changed,
    is_adapted,
    rule,
)


def _run(local: Local) -> list[Any]:
    axes = local.axes("heads")
    (query, key, _), output = projections(local.layer)
    bias = output.bias
    heads, shared_heads = int(query.kernel.shape[1]), int(key.kernel.shape[1])
    with changed(output, bias=None), changed(local.layer, **_dropout(local, axes)):
        (summand,) = local.plain(
            _num_heads=heads, num_query_heads=heads, num_key_value_heads=shared_heads
        )
    return [added_once(local, summand, bias, axes)]


def _dropout(local: Local, axes: list[str]) -> dict[str, Any]:
    """In the place of the layer that drops scores of heads: that of all heads, as it is."""
    name, dropout = dropout_of(local.layer)
    heads = _heads_of(local.layer)

    def dropped(scores: tf.Tensor, training: bool | None = None) -> tf.Tensor:
        if not training:
            return scores
        shape = tf.shape(scores)
        whole = tf.ones([shape[0], heads, *tf.unstack(shape[2:])], scores.dtype)
        whole.set_shape([None, heads, *scores.shape[2:]])
        kept = local.drawn(lambda x: dropout(x, training=True), whole, [(1, a) for a in axes])
        return scores * kept

    return {name: dropped}


def _of_heads(site: Site) -> Iterator[Way]:
    inner, output = projections(site.layer)
    if len(site.gives) > 1 or is_gated(site.layer) or any(map(is_adapted, (*inner, output))):
        return
    weights: dict[int, Any] = {id(output.kernel): 0}
    for one in inner:
        weights[id(one.kernel)] = 1
        if one.bias is not None:
            weights[id(one.bias)] = 0
    yield Way("heads", [_by_heads(site, shape) for shape in site.takes], [PARTIAL], weights)


def _by_heads(site: Site, shape: Shape) -> Cut | None:
    """How a mask is cut that says something else of each head: it has a dimension more."""
    is_mask = len(shape) > len(site.takes[0])
    return Cut(1) if is_mask and shape[1] == _heads_of(site.layer) else None


def _heads_of(layer: Any) -> int:
    """How many heads queries have."""
    return int(getattr(layer, "num_query_heads", None) or layer.num_heads)


@rule(keras.layers.MultiHeadAttention, run=_run)
def attention(site: Site, parts: int) -> Iterator[Way]:
    if site.layer.num_heads >= parts:
        yield from _of_heads(site)


@rule(keras.layers.GroupQueryAttention, run=_run)
def grouped_attention(site: Site, parts: int) -> Iterator[Way]:
    """Heads of queries stay with the heads of keys and values that they share."""
    if site.layer.num_key_value_heads % parts == site.layer.num_query_heads % parts == 0:
        yield from _of_heads(site)
