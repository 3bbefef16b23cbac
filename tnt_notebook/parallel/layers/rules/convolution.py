"""Convolutions in space, with halos, by filters and by channels (Dryden et al., IPDPS and SC 2019).

A block of the output needs its rows of the input, and a halo around them; what lies beyond the ends
is the padding. Filters cut the output's channels, channels the input's: then ranks have summands.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import keras

from tnt_notebook.parallel.layers.activations import is_elementwise
from tnt_notebook.parallel.layers.boxes import blocks
from tnt_notebook.parallel.layers.rule import BlockCall, Cut, LayerCall, Way, name_of, rule
from tnt_notebook.parallel.layers.rules.activated import activated, is_known
from tnt_notebook.parallel.layers.rules.shared import (
    cut_by_inputs,
    cut_by_outputs,
    is_adapted,
    is_channels_last,
    summed_up,
)
from tnt_notebook.parallel.layers.rules.window import TransposedWindow, Window


def windows(layer_call: LayerCall, kind: type[Window] = Window) -> list[Any]:
    """Of each dimension in space, of a convolution or pooling; None where its size is not known."""
    layer, shape = layer_call.layer, layer_call.takes[0]
    kernel = getattr(layer, "kernel_size", None) or layer.pool_size
    dilation = getattr(layer, "dilation_rate", None) or [1] * len(kernel)
    sizes = zip(shape[1:-1], kernel, layer.strides, dilation, strict=True)
    return [None if n is None else kind(n, k, s, d, layer.padding) for n, k, s, d in sizes]


def cuts_in_space(
    layer_call: LayerCall, parts: int, found: list[Any], fill: float = 0.0
) -> Iterator[Way]:
    """A way for each dimension of which every rank has a row, of input and output. Where windows go
    beyond the ends, only if it is known by how much in all dimensions."""
    if layer_call.layer.padding != "valid" and not all(found):
        return
    # Of a transposed convolution it is the output that has rows less.
    plain = [(i + 1, w.pad) for i, w in enumerate(found) if type(w) is Window and any(w.pad)]
    for i, window in enumerate(found):
        if window is not None and min(window.size, window.out) >= parts:
            name = name_of(len(layer_call.takes[0]), i + 1)
            yield Way(name, [Cut(i + 1, window.rows(parts), tuple(plain))], [i + 1], fill=fill)


def run_in_space(block_call: BlockCall) -> list[Any]:
    """What a layer with windows, and nothing else that is cut, makes of a block."""
    return block_call.plain(**padded_already(block_call))


def padded_already(block_call: BlockCall) -> dict[str, str]:
    """The attributes that the layer has where a dimension is cut: its padding is there, and that of
    the others too."""
    return {"padding": "valid"} if block_call.cuts_in_rows() else {}


def _run(block_call: BlockCall) -> list[Any]:
    layer, channels, filters = (
        block_call.layer,
        block_call.axes("channels"),
        block_call.axes("filters"),
    )
    instead: dict[str, Any] = padded_already(block_call)
    if filters:
        instead["filters"] = layer.kernel.shape[-1]
    if channels:
        (summand,) = block_call.plain(use_bias=False, activation=None, **instead)
        return [
            summed_up(
                block_call, summand, layer.bias, channels,
                lambda x: activated(block_call, x, filters),
            )
        ]  # fmt: skip
    if not filters or is_elementwise(layer.activation):
        return block_call.plain(**instead)
    (product,) = block_call.plain(activation=None, **instead)
    return [activated(block_call, product, filters)]


@rule(keras.layers.Conv1D, keras.layers.Conv2D, keras.layers.Conv3D, run=_run)
def convolution(layer_call: LayerCall, parts: int) -> Iterator[Way]:
    layer = layer_call.layer
    if not is_channels_last(layer_call) or is_adapted(layer):
        return
    yield from cuts_in_space(layer_call, parts, windows(layer_call))
    if layer.groups > 1:
        return
    last = len(layer_call.takes[0]) - 1
    if layer.filters >= parts and is_known(layer.activation):
        yield Way("filters", [None], [last], cut_by_outputs(layer, last))
    if last in layer_call.divisible(layer_call.takes[0], parts):
        gives, weights = cut_by_inputs(layer, last - 1)
        yield Way("channels", [Cut(last)], [gives], weights)


@rule(
    keras.layers.DepthwiseConv1D, keras.layers.DepthwiseConv2D, keras.layers.SeparableConv1D,
    keras.layers.SeparableConv2D, run=run_in_space,
)  # fmt: skip
def of_each_channel(layer_call: LayerCall, parts: int) -> Iterator[Way]:
    if is_channels_last(layer_call):
        yield from cuts_in_space(layer_call, parts, windows(layer_call))


def _run_transposed(block_call: BlockCall) -> list[Any]:
    layer, cut = block_call.layer, block_call.cuts_in_rows()
    instead = {"filters": layer.kernel.shape[-2]} if block_call.axes("filters") else {}
    if not cut:
        return block_call.plain(**instead)
    # Whole windows of the rows that are here, of which this rank's block of the output is cut.
    activation, index = layer.activation, [slice(None)]
    (made,) = block_call.plain(padding="valid", activation=None, **instead)
    for i, window in enumerate(windows(block_call.layer_call, TransposedWindow)):
        begin, end, first = 0, window.out, 0
        if (axis := cut.get(i + 1)) is not None:
            parts, at = block_call.ranks.mesh.along(axis), block_call.index(axis)
            begin, end = blocks(window.out, parts)[at]
            first = window.rows(parts)[at][0]
        offset = begin + window.pad[0] - first * window.stride
        index.append(slice(offset, offset + end - begin))
    result = made[tuple(index)]
    return [result if activation is None else activation(result)]


@rule(
    keras.layers.Conv1DTranspose, keras.layers.Conv2DTranspose, keras.layers.Conv3DTranspose,
    run=_run_transposed,
)  # fmt: skip
def transposed(layer_call: LayerCall, parts: int) -> Iterator[Way]:
    layer, shape = layer_call.layer, layer_call.takes[0]
    last = len(shape) - 1
    if not is_channels_last(layer_call) or layer.output_padding is not None or not all(shape[1:]):
        return
    yield from cuts_in_space(layer_call, parts, windows(layer_call, TransposedWindow))
    if layer.filters >= parts and is_elementwise(layer.activation):
        yield Way("filters", [None], [last], cut_by_outputs(layer, last - 1))
