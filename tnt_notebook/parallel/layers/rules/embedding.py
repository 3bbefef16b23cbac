"""Embeddings by columns, and by rows: of an id that is in another rank's rows a rank has zeros."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import keras
import tensorflow as tf

from tnt_notebook.parallel.layers.boxes import blocks
from tnt_notebook.parallel.layers.rule import (
    PARTIAL,
    Cut,
    Gives,
    Local,
    Site,
    Way,
    is_adapted,
    rule,
)


def _run(local: Local) -> list[Any]:
    layer, axes = local.layer, local.axes("rows")
    if not axes:
        return local.plain()
    (axis,) = axes
    value = local.site.call.takes[0]
    ids = tf.cast(local.values[value], tf.int32)
    begin, end = blocks(layer.input_dim, local.ranks.mesh.along(axis))[local.index(axis)]
    here = tf.logical_and(ids >= begin, ids < end)
    local.values[value] = tf.where(here, ids - begin, 0)
    (found,) = local.plain()
    return [tf.where(here[..., None], found, tf.zeros_like(found))]


@rule(keras.layers.Embedding, run=_run)
def embedding(site: Site, parts: int) -> Iterator[Way]:
    layer, given = site.layer, site.gives[0]
    if is_adapted(layer):
        return
    weight, last = id(layer.embeddings), len(given) - 1
    others: list[Gives] = [None] * (len(site.gives) - 1)
    if layer.output_dim >= parts:
        yield Way("columns", [None], [last, *others], {weight: 1})
    if others:
        return  # the mask is made of all ids
    if layer.input_dim >= parts:
        yield Way("rows", [None], [PARTIAL], {weight: 0})
    for dim in site.divisible(given[:-1], parts):
        yield Way(f"dim {dim}", [Cut(dim)], [dim])
