"""What puts values together, or numbers in other places."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import keras

from tnt_notebook.keras.graph import layers_within
from tnt_notebook.keras.state import is_of_keras
from tnt_notebook.parallel.layers.boxes import Range, blocks
from tnt_notebook.parallel.layers.rule import BlockCall, Cut, LayerCall, Shape, Way, name_of, rule
from tnt_notebook.parallel.layers.rules.shared import is_channels_last


@rule(keras.layers.Concatenate)
def concatenate(layer_call: LayerCall, parts: int) -> Iterator[Way]:
    """Along the dimensions in which nothing is joined."""
    given = layer_call.gives[0]
    joined = layer_call.layer.axis % len(given)
    if len(layer_call.gives) > 1:
        return
    for dim in layer_call.divisible(given, parts):
        if dim != joined:
            yield Way(name_of(len(given), dim), [Cut(dim)] * len(layer_call.takes), [dim])


def surviving(taken: Shape, given: Shape, parts: int) -> Iterator[tuple[int, int]]:
    """Dimensions of what is reshaped, and of what comes out, whose blocks are the same numbers in
    the same order: as many come before them, and both are divided evenly."""
    for dim, size in enumerate(taken):
        for other, result in enumerate(given):
            if dim and other and size and result and size % parts == result % parts == 0:
                before, after = taken[1:dim], given[1:other]
                if all(before) and all(after) and _product(before) == _product(after):
                    yield dim, other


def _product(sizes: Shape) -> int:
    return math.prod(size or 1 for size in sizes)


def _run_reshape(block_call: BlockCall) -> list[Any]:
    shape = list(block_call.layer_call.gives[0])
    for axis, way in block_call.ways.items():
        (dim,) = way.gives
        assert isinstance(dim, int)  # it survives
        begin, end = block_call.rows(axis, shape[dim])
        shape[dim] = end - begin
    return block_call.plain(target_shape=tuple(shape[1:]))


@rule(keras.layers.Reshape, run=_run_reshape)
def reshape(layer_call: LayerCall, parts: int) -> Iterator[Way]:
    (taken, *masks), (given, *others) = layer_call.takes, layer_call.gives
    if masks or others or not all(given[1:]):
        return
    for dim, other in surviving(taken, given, parts):
        yield Way(name_of(len(taken), dim), [Cut(dim)], [other])


@rule(keras.layers.Flatten)
def flatten(layer_call: LayerCall, parts: int) -> Iterator[Way]:
    taken, given = layer_call.takes[0], layer_call.gives[0]
    if is_channels_last(layer_call) and all(taken[1:]):
        for dim, other in surviving(taken, given, parts):
            yield Way(name_of(len(taken), dim), [Cut(dim)], [other])


def _run_repeat(block_call: BlockCall) -> list[Any]:
    count = block_call.layer.n
    for axis in block_call.axes("width"):
        begin, end = block_call.rows(axis, count)
        count = end - begin
    return block_call.plain(n=count)


@rule(keras.layers.RepeatVector, run=_run_repeat)
def repeat_vector(layer_call: LayerCall, parts: int) -> Iterator[Way]:
    """Some of the repetitions each, or some of the numbers."""
    taken, *masks = layer_call.takes
    if masks or len(layer_call.gives) > 1:
        return
    if layer_call.layer.n >= parts:
        yield Way("width", [None], [1])
    if 1 in layer_call.divisible(taken, parts):
        yield Way("channels", [Cut(1)], [2])


@rule(keras.layers.TimeDistributed)
def time_distributed(layer_call: LayerCall, parts: int) -> Iterator[Way]:
    """Some of the steps each, where the layer inside keeps nothing from step to step, and what is
    inside of that adds nothing to the loss."""
    (taken, *masks), inner = layer_call.takes, layer_call.layer.layer
    adds = any(
        each.activity_regularizer is not None or not is_of_keras(type(each))
        for each in layers_within(inner, itself=False)
    )
    if masks or len(layer_call.gives) > 1 or adds or not is_of_keras(type(inner)):
        return
    if not inner.non_trainable_variables and 1 in layer_call.divisible(taken, parts):
        yield Way(name_of(len(taken), 1), [Cut(1)], [1])


@rule(keras.layers.Permute)
def permute(layer_call: LayerCall, parts: int) -> Iterator[Way]:
    for dim in layer_call.divisible(layer_call.gives[0], parts):
        yield Way(f"dim {dim}", [Cut(layer_call.layer.dims[dim - 1])], [dim])


def _edges(layer: Any) -> list[Range]:
    """What is added before and after each dimension in space; negative where it is taken away."""
    name, sign = ("padding", 1) if hasattr(layer, "padding") else ("cropping", -1)
    given = getattr(layer, name)
    pairs = [given] if isinstance(given[0], int) else given
    return [(sign * before, sign * after) for before, after in pairs]


def _run_edges(block_call: BlockCall) -> list[Any]:
    """Where a dimension is cut, its edges are there."""
    layer = block_call.layer
    name = "padding" if hasattr(layer, "padding") else "cropping"
    cut = block_call.cuts_in_rows()
    pairs = [
        (0, 0) if i + 1 in cut else (abs(before), abs(after))
        for i, (before, after) in enumerate(_edges(layer))
    ]
    single = isinstance(getattr(layer, name)[0], int)
    return block_call.plain(**{name: pairs[0] if single else tuple(pairs)})


@rule(
    keras.layers.ZeroPadding1D, keras.layers.ZeroPadding2D, keras.layers.ZeroPadding3D,
    keras.layers.Cropping1D, keras.layers.Cropping2D, keras.layers.Cropping3D, run=_run_edges,
)  # fmt: skip
def edges(layer_call: LayerCall, parts: int) -> Iterator[Way]:
    layer, shape = layer_call.layer, layer_call.takes[0]
    if not is_channels_last(layer_call):
        return
    for i, (before, after) in enumerate(_edges(layer)):
        size = shape[i + 1]
        if size and min(size, size + before + after) >= parts:
            found = blocks(size + before + after, parts)
            rows = tuple((begin - before, end - before) for begin, end in found)
            yield Way(name_of(len(shape), i + 1), [Cut(i + 1, rows)], [i + 1])
    last = len(shape) - 1
    if last in layer_call.divisible(shape, parts):
        yield Way("channels", [Cut(last)], [last])
