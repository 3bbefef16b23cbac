"""Pooling in space, with halos where windows overlap; global pooling by summands."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import keras
import tensorflow as tf

from tnt_notebook.parallel.layers.rule import (
    PARTIAL,
    Cut,
    Local,
    Site,
    Way,
    is_channels_last,
    name_of,
    rule,
)
from tnt_notebook.parallel.layers.rules.convolution import cuts_in_space, run_in_space, windows

_LOWEST = float("-inf")


def _of_channels(site: Site, parts: int) -> Iterator[Way]:
    last = len(site.takes[0]) - 1
    if last in site.divisible(site.takes[0], parts):
        yield Way("channels", [Cut(last)], [len(site.gives[0]) - 1])


@rule(
    keras.layers.MaxPooling1D, keras.layers.MaxPooling2D, keras.layers.MaxPooling3D,
    run=run_in_space,
)  # fmt: skip
def max_pooling(site: Site, parts: int) -> Iterator[Way]:
    if is_channels_last(site):
        yield from cuts_in_space(site, parts, windows(site), _LOWEST)
        yield from _of_channels(site, parts)


@rule(
    keras.layers.AveragePooling1D, keras.layers.AveragePooling2D, keras.layers.AveragePooling3D,
    run=run_in_space,
)  # fmt: skip
def average_pooling(site: Site, parts: int) -> Iterator[Way]:
    """Not in space where windows go beyond the ends: such a mean is of fewer rows."""
    if is_channels_last(site):
        found = windows(site)
        if all(window is None or window.pad == (0, 0) for window in found):
            yield from cuts_in_space(site, parts, found)
        yield from _of_channels(site, parts)


def _run_global(local: Local) -> list[Any]:
    (given,) = local.plain()
    # A mean over a block counts by its rows.
    for way in local.ways.values():
        cut = way.takes[0]
        if way.gives[0] == PARTIAL and cut is not None:
            whole = local.site.takes[0][cut.dim]
            rows = local.values[local.site.call.takes[0]].shape[cut.dim]
            given *= tf.constant(rows / whole, given.dtype)
    return [given]


@rule(
    keras.layers.GlobalAveragePooling1D,
    keras.layers.GlobalAveragePooling2D,
    keras.layers.GlobalAveragePooling3D,
    run=_run_global,
)
def global_average(site: Site, parts: int) -> Iterator[Way]:
    shape = site.takes[0]
    if not is_channels_last(site):
        return
    for dim in site.divisible(shape[:-1], parts):
        yield Way(name_of(len(shape), dim), [Cut(dim)], [PARTIAL])
    yield from _of_channels(site, parts)


@rule(
    keras.layers.GlobalMaxPooling1D,
    keras.layers.GlobalMaxPooling2D,
    keras.layers.GlobalMaxPooling3D,
)
def global_max(site: Site, parts: int) -> Iterator[Way]:
    if is_channels_last(site):
        yield from _of_channels(site, parts)


@rule(keras.layers.UpSampling1D, keras.layers.UpSampling2D, keras.layers.UpSampling3D)
def up_sampling(site: Site, parts: int) -> Iterator[Way]:
    """In blocks of the input where these are blocks of the output, too; nearest rows alone."""
    layer, shape = site.layer, site.takes[0]
    if not is_channels_last(site) or getattr(layer, "interpolation", "nearest") != "nearest":
        return
    for dim in site.divisible(shape[:-1], parts):
        if (shape[dim] or 1) % parts == 0:
            yield Way(name_of(len(shape), dim), [Cut(dim)], [dim])
    yield from _of_channels(site, parts)
