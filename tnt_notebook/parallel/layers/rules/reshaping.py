"""What puts values together, or numbers in other places."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import keras

from tnt_notebook.parallel.layers.boxes import Range, blocks
from tnt_notebook.parallel.layers.rule import Cut, Local, Site, Way, is_channels_last, name_of, rule


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


@rule(keras.layers.Flatten)
def flatten(site: Site, parts: int) -> Iterator[Way]:
    """Blocks of the first dimension, where these are blocks of the result."""
    shape = site.takes[0]
    if is_channels_last(site) and len(shape) > 1 and shape[1] and shape[1] % parts == 0:
        yield Way(name_of(len(shape), 1), [Cut(1)], [1])


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
