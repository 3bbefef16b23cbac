"""Convolutions in space, with halos, by filters and by channels (Dryden et al., IPDPS and SC 2019).

A block of the output needs its rows of the input, and a halo around them; what lies beyond the ends
is the padding. Filters cut the output's channels, channels the input's: then ranks have summands.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import keras
import tensorflow as tf

from tnt_notebook.parallel.layers.boxes import blocks
from tnt_notebook.parallel.layers.moves import total
from tnt_notebook.parallel.layers.rule import (
    PARTIAL,
    SAME,
    Cut,
    Gives,
    Local,
    Site,
    Way,
    added_once,
    ends_in_sum,
    is_adapted,
    is_elementwise,
    name_of,
    rule,
)
from tnt_notebook.parallel.layers.rules.window import TransposedWindow, Window


def windows(site: Site) -> list[Window | None]:
    """Of each dimension in space; None where its size is not known."""
    layer, shape = site.layer, site.takes[0]
    kernel, stride, dilation = layer.kernel_size, layer.strides, layer.dilation_rate
    return [
        None if size is None else Window(size, kernel[i], stride[i], dilation[i], layer.padding)
        for i, size in enumerate(shape[1:-1])
    ]


def cuts_in_space(
    site: Site, parts: int, found: list[Window | None], fill: float = 0.0
) -> Iterator[Way]:
    """A way for each dimension of which every rank has a row, of input and output."""
    for i, window in enumerate(found):
        if window is not None and min(window.size, window.out) >= parts:
            dim = i + 1
            name = name_of(len(site.takes[0]), dim)
            yield Way(name, [Cut(dim, window.rows(parts))], [dim], fill=fill)


def padded_elsewhere(local: Local, found: list[Window | None], fill: float = 0.0) -> bool:
    """Where a dimension is cut, its padding is there: adds that of the others to the input. Gives
    whether it did."""
    value = local.site.call.takes[0]
    cut = {c.dim for way in local.ways.values() for c in way.takes[:1] if c and c.rows}
    if not cut or local.layer.padding == "valid":
        return bool(cut)
    x = local.values[value]
    paddings: list[tuple[Any, Any]] = [(0, 0)] * len(x.shape)
    for i, window in enumerate(found):
        if i + 1 not in cut:
            assert window is not None  # the others were not offered then
            paddings[i + 1] = window.pad
    local.values[value] = tf.pad(x, paddings, constant_values=tf.cast(fill, x.dtype))
    return True


def _run(local: Local) -> list[Any]:
    layer = local.layer
    instead: dict[str, Any] = {}
    if padded_elsewhere(local, windows(local.site)):
        instead["padding"] = "valid"
    if local.axes("filters"):
        instead["filters"] = layer.kernel.shape[-1]
    channels = local.axes("channels")
    if not channels:
        return local.plain(**instead)
    bias = layer.bias
    (summand,) = local.plain(use_bias=False, activation=None, **instead)
    if ends_in_sum(layer):
        return [added_once(local, summand, bias, channels)]
    result = total(summand, local.group(channels), f"sum over channels of {layer.name}")
    if bias is not None:
        result += tf.cast(bias, result.dtype)
    return [result if layer.activation is None else layer.activation(result)]


@rule(keras.layers.Conv1D, keras.layers.Conv2D, keras.layers.Conv3D, run=_run)
def convolution(site: Site, parts: int) -> Iterator[Way]:
    layer = site.layer
    if layer.data_format != "channels_last" or len(site.takes) > 1 or is_adapted(layer):
        return
    found = windows(site)
    if layer.padding == "valid" or all(found):
        yield from cuts_in_space(site, parts, found)
    if layer.groups > 1:
        return
    kernel, bias, last = layer.kernel, layer.bias, len(site.takes[0]) - 1
    if layer.filters >= parts and is_elementwise(layer.activation):
        weights: dict[int, Any] = {id(kernel): last}
        if bias is not None:
            weights[id(bias)] = 0
        yield Way("filters", [None], [last], weights)
    if last in site.divisible(site.takes[0], parts):
        weights = {id(kernel): last - 1}
        gives: Gives = PARTIAL
        if not ends_in_sum(layer):
            gives = None
            if bias is not None:
                weights[id(bias)] = SAME
        yield Way("channels", [Cut(last)], [gives], weights)


def _run_depthwise(local: Local) -> list[Any]:
    padded = padded_elsewhere(local, windows(local.site))
    return local.plain(**({"padding": "valid"} if padded else {}))


@rule(keras.layers.DepthwiseConv1D, keras.layers.DepthwiseConv2D, run=_run_depthwise)
def depthwise(site: Site, parts: int) -> Iterator[Way]:
    layer = site.layer
    if layer.data_format != "channels_last" or len(site.takes) > 1:
        return
    found = windows(site)
    if layer.padding == "valid" or all(found):
        yield from cuts_in_space(site, parts, found)


@rule(keras.layers.SeparableConv1D, keras.layers.SeparableConv2D, run=_run_depthwise)
def separable(site: Site, parts: int) -> Iterator[Way]:
    yield from depthwise(site, parts)


def _run_transposed(local: Local) -> list[Any]:
    layer, site = local.layer, local.site
    found = transposed_windows(site)
    value = site.call.takes[0]
    cut = {c.dim: axis for axis, w in local.ways.items() for c in w.takes[:1] if c and c.rows}
    if not cut:
        return local.plain(**_filters(local))
    # Whole windows of the rows that are here, of which this rank's block of the output is cut.
    activation = layer.activation
    (made,) = local.plain(padding="valid", activation=None, **_filters(local))
    index = [slice(None)] * len(made.shape)
    for i, window in enumerate(found):
        begin, end, first = 0, window.out, 0
        if (axis := cut.get(i + 1)) is not None:
            parts, at = local.ranks.mesh.along(axis), local.index(axis)
            begin, end = blocks(window.out, parts)[at]
            first = window.rows(parts)[at][0]
        offset = begin + window.before - first * window.stride
        index[i + 1] = slice(offset, offset + end - begin)
    result = made[tuple(index)]
    del local.values[value]
    return [result if activation is None else activation(result)]


def _filters(local: Local) -> dict[str, Any]:
    return {"filters": local.layer.kernel.shape[-2]} if local.axes("filters") else {}


def transposed_windows(site: Site) -> list[TransposedWindow]:
    """Of each dimension in space, whose sizes are known."""
    layer, shape = site.layer, site.takes[0]
    sizes = zip(shape[1:-1], layer.kernel_size, layer.strides, layer.dilation_rate, strict=True)
    return [TransposedWindow(n or 0, k, s, d, layer.padding) for n, k, s, d in sizes]


@rule(
    keras.layers.Conv1DTranspose,
    keras.layers.Conv2DTranspose,
    keras.layers.Conv3DTranspose,
    run=_run_transposed,
)
def transposed(site: Site, parts: int) -> Iterator[Way]:
    layer, shape = site.layer, site.takes[0]
    last = len(shape) - 1
    plain = layer.data_format == "channels_last" and layer.output_padding is None
    if not plain or len(site.takes) > 1 or not all(shape[1:]):
        return
    for i, window in enumerate(transposed_windows(site)):
        if min(window.size, window.out) >= parts:
            yield Way(name_of(len(shape), i + 1), [Cut(i + 1, window.rows(parts))], [i + 1])
    if layer.filters >= parts and is_elementwise(layer.activation):
        weights: dict[int, Any] = {id(layer.kernel): last - 1}
        if layer.bias is not None:
            weights[id(layer.bias)] = 0
        yield Way("filters", [None], [last], weights)
