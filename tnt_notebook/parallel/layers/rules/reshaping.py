"""What puts values together, or numbers in other places."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import keras

from tnt_notebook.keras.graph import layers_within
from tnt_notebook.keras.state import is_of_keras
from tnt_notebook.parallel.layers.boxes import Range, blocks
from tnt_notebook.parallel.layers.rule import (
    Cut,
    Local,
    Shape,
    Site,
    Way,
    is_channels_last,
    name_of,
    rule,
)


@rule(keras.layers.Concatenate)
def concatenate(site: Site, parts: int) -> Iterator[Way]:
    """Along the dimensions in which nothing is joined."""
    given = site.gives[0]
    joined = site.layer.axis % len(given)
    if len(site.gives) > 1:
        return
    for dim in site.divisible(given, parts):
        if dim != joined:
            yield Way(name_of(len(given), dim), [Cut(dim)] * len(site.takes), [dim])


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


def _run_reshape(local: Local) -> list[Any]:
    shape = list(local.site.gives[0])
    for axis, way in local.ways.items():
        (dim,) = way.gives
        assert isinstance(dim, int)  # it survives
        begin, end = local.rows(axis, shape[dim])
        shape[dim] = end - begin
    return local.plain(target_shape=tuple(shape[1:]))


@rule(keras.layers.Reshape, run=_run_reshape)
def reshape(site: Site, parts: int) -> Iterator[Way]:
    (taken, *masks), (given, *others) = site.takes, site.gives
    if masks or others or not all(given[1:]):
        return
    for dim, other in surviving(taken, given, parts):
        yield Way(name_of(len(taken), dim), [Cut(dim)], [other])


@rule(keras.layers.Flatten)
def flatten(site: Site, parts: int) -> Iterator[Way]:
    taken, given = site.takes[0], site.gives[0]
    if is_channels_last(site) and all(taken[1:]):
        for dim, other in surviving(taken, given, parts):
            yield Way(name_of(len(taken), dim), [Cut(dim)], [other])


def _run_repeat(local: Local) -> list[Any]:
    count = local.layer.n
    for axis in local.axes("width"):
        begin, end = local.rows(axis, count)
        count = end - begin
    return local.plain(n=count)


@rule(keras.layers.RepeatVector, run=_run_repeat)
def repeat_vector(site: Site, parts: int) -> Iterator[Way]:
    """Some of the repetitions each, or some of the numbers."""
    taken, *masks = site.takes
    if masks or len(site.gives) > 1:
        return
    if site.layer.n >= parts:
        yield Way("width", [None], [1])
    if 1 in site.divisible(taken, parts):
        yield Way("channels", [Cut(1)], [2])


@rule(keras.layers.TimeDistributed)
def time_distributed(site: Site, parts: int) -> Iterator[Way]:
    """Some of the steps each, where the layer inside keeps nothing from step to step, and what is
    inside of that adds nothing to the loss."""
    (taken, *masks), inner = site.takes, site.layer.layer
    adds = any(
        each.activity_regularizer is not None or not is_of_keras(type(each))
        for each in layers_within(inner, itself=False)
    )
    if masks or len(site.gives) > 1 or adds or not is_of_keras(type(inner)):
        return
    if not inner.non_trainable_variables and 1 in site.divisible(taken, parts):
        yield Way(name_of(len(taken), 1), [Cut(1)], [1])


@rule(keras.layers.Permute)
def permute(site: Site, parts: int) -> Iterator[Way]:
    for dim in site.divisible(site.gives[0], parts):
        yield Way(f"dim {dim}", [Cut(site.layer.dims[dim - 1])], [dim])


def _edges(layer: Any) -> list[Range]:
    """What is added before and after each dimension in space; negative where it is taken away."""
    name, sign = ("padding", 1) if hasattr(layer, "padding") else ("cropping", -1)
    given = getattr(layer, name)
    pairs = [given] if isinstance(given[0], int) else given
    return [(sign * before, sign * after) for before, after in pairs]


def _run_edges(local: Local) -> list[Any]:
    """Where a dimension is cut, its edges are there."""
    layer = local.layer
    name = "padding" if hasattr(layer, "padding") else "cropping"
    cut = local.cuts_in_rows()
    pairs = [
        (0, 0) if i + 1 in cut else (abs(before), abs(after))
        for i, (before, after) in enumerate(_edges(layer))
    ]
    single = isinstance(getattr(layer, name)[0], int)
    return local.plain(**{name: pairs[0] if single else tuple(pairs)})


@rule(
    keras.layers.ZeroPadding1D, keras.layers.ZeroPadding2D, keras.layers.ZeroPadding3D,
    keras.layers.Cropping1D, keras.layers.Cropping2D, keras.layers.Cropping3D, run=_run_edges,
)  # fmt: skip
def edges(site: Site, parts: int) -> Iterator[Way]:
    layer, shape = site.layer, site.takes[0]
    if not is_channels_last(site):
        return
    for i, (before, after) in enumerate(_edges(layer)):
        size = shape[i + 1]
        if size and min(size, size + before + after) >= parts:
            found = blocks(size + before + after, parts)
            rows = tuple((begin - before, end - before) for begin, end in found)
            yield Way(name_of(len(shape), i + 1), [Cut(i + 1, rows)], [i + 1])
    last = len(shape) - 1
    if last in site.divisible(shape, parts):
        yield Way("channels", [Cut(last)], [last])
