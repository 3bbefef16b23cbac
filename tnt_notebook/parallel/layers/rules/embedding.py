"""Embeddings by columns, and by rows: of an id that is in another rank's rows a rank has zeros.
Reversible ones give logits, too: by rows of the embeddings, a rank has those of its ids."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Literal

import keras
import tensorflow as tf

from tnt_notebook.parallel.layers.boxes import blocks
from tnt_notebook.parallel.layers.rule import (
    PARTIAL,
    SAME,
    BlockCall,
    Cut,
    Gives,
    LayerCall,
    Way,
    rule,
)
from tnt_notebook.parallel.layers.rules.shared import is_adapted


def _run(block_call: BlockCall) -> list[Any]:
    layer, axes = block_call.layer, block_call.axes("rows")
    if not axes:
        return block_call.plain()
    (axis,) = axes
    value = block_call.layer_call.call.takes[0]
    ids = tf.cast(block_call.values[value], tf.int32)
    begin, end = blocks(layer.input_dim, block_call.ranks.mesh.along(axis))[block_call.index(axis)]
    here = tf.logical_and(ids >= begin, ids < end)
    block_call.values[value] = tf.where(here, ids - begin, 0)
    found, *masks = block_call.plain()
    found = tf.where(here[..., None], found, tf.zeros_like(found))
    return [found, *(tf.not_equal(ids, 0) for _ in masks)]


@rule(keras.layers.Embedding, run=_run)
def embedding(layer_call: LayerCall, parts: int) -> Iterator[Way]:
    layer, given = layer_call.layer, layer_call.gives[0]
    if is_adapted(layer):
        return
    weight, last = id(layer.embeddings), len(given) - 1
    masks: list[Gives] = [None] * (len(layer_call.gives) - 1)
    if layer.output_dim >= parts:
        yield Way("columns", [None], [last, *masks], {weight: 1})
    if layer.input_dim >= parts:
        yield Way("rows", [None], [PARTIAL, *masks], {weight: 0})
    for dim in layer_call.divisible(given[:-1], parts):
        yield Way(f"dim {dim}", [Cut(dim)], [dim, *(dim for _ in masks)])


def _is_reversed(layer_call: LayerCall) -> bool:
    """Whether a call gives logits: embedded ids have a dimension more than ids."""
    return len(layer_call.takes[0]) == len(layer_call.gives[0])


def _run_reversible(block_call: BlockCall) -> list[Any]:
    if not _is_reversed(block_call.layer_call):
        return _run(block_call)
    columns, layer = block_call.axes("columns"), block_call.layer
    if not columns or layer.logit_soft_cap is None:
        return block_call.plain()
    (summand,) = block_call.plain(logit_soft_cap=None)
    logits = block_call.total(summand, columns)
    return [tf.tanh(logits / layer.logit_soft_cap) * layer.logit_soft_cap]


def _reversible(layer_call: LayerCall, parts: int) -> Iterator[Way]:
    """Without tied weights it has some for each direction: a call leaves those of the other one as
    they are cut."""
    layer, embeddings = layer_call.layer, layer_call.layer.embeddings
    if is_adapted(layer):
        return
    backward = embeddings if layer.tie_weights else layer.reverse_embeddings
    back = _is_reversed(layer_call)
    ways = list(_reversed(layer_call, parts, backward) if back else embedding(layer_call, parts))
    yield from ways
    if not layer.tie_weights:
        used, other = (backward, embeddings) if back else (embeddings, backward)
        takes: list[Cut | None] = [None] * len(layer_call.takes)
        gives: list[Gives] = [None] * len(layer_call.gives)
        whole = Way("whole", takes, gives, {id(used): SAME}, divides=False)
        cuts: list[int | Literal["same"]] = [d for d in (0, 1) if other.shape[d] >= parts]
        for way in [*ways, whole]:
            for cut in [SAME, *cuts]:
                yield replace(way, weights={**way.weights, id(other): cut})


def _reversed(layer_call: LayerCall, parts: int, weight: keras.Variable) -> Iterator[Way]:
    layer, given = layer_call.layer, layer_call.gives[0]
    last, rows = len(given) - 1, 0 if layer.tie_weights else 1
    masks: list[Cut | None] = [None] * (len(layer_call.takes) - 1)
    others: list[Gives] = [None] * (len(layer_call.gives) - 1)
    for dim in layer_call.divisible(given[:-1], parts):
        yield Way(f"dim {dim}", [Cut(dim), *masks], [dim, *others])
    if layer.input_dim >= parts:
        yield Way("rows", [None, *masks], [last, *others], {id(weight): rows})
    if layer.output_dim >= parts:
        gives = PARTIAL if layer.logit_soft_cap is None else None
        yield Way("columns", [Cut(last), *masks], [gives, *others], {id(weight): 1 - rows})


if hasattr(keras.layers, "ReversibleEmbedding"):  # not in the oldest Keras
    rule(keras.layers.ReversibleEmbedding, run=_run_reversible)(_reversible)
