"""Pooling in space, with halos where windows overlap; global pooling by summands; up-sampling."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import keras
import tensorflow as tf

from tnt_notebook.comm import ops
from tnt_notebook.parallel.layers.boxes import Range, blocks
from tnt_notebook.parallel.layers.rule import PARTIAL, BlockCall, Cut, LayerCall, Way, name_of, rule
from tnt_notebook.parallel.layers.rules.convolution import cuts_in_space, run_in_space, windows
from tnt_notebook.parallel.layers.rules.shared import is_channels_last
from tnt_notebook.telemetry.exchanges import Purpose

_LOWEST = float("-inf")


def _of_channels(layer_call: LayerCall, parts: int) -> Iterator[Way]:
    last = len(layer_call.takes[0]) - 1
    if last in layer_call.divisible(layer_call.takes[0], parts):
        yield Way("channels", [Cut(last)], [len(layer_call.gives[0]) - 1])


@rule(
    keras.layers.MaxPooling1D, keras.layers.MaxPooling2D, keras.layers.MaxPooling3D,
    run=run_in_space,
)  # fmt: skip
def max_pooling(layer_call: LayerCall, parts: int) -> Iterator[Way]:
    if is_channels_last(layer_call):
        yield from cuts_in_space(layer_call, parts, windows(layer_call), _LOWEST)
        yield from _of_channels(layer_call, parts)


def _run_average(block_call: BlockCall) -> list[Any]:
    """A mean is of the rows that there are: not of those beyond the ends, which are zeros here."""
    cut, (mean,) = block_call.cuts_in_rows(), run_in_space(block_call)
    if not cut or block_call.layer.padding == "valid":
        return [mean]
    for i, window in enumerate(windows(block_call.layer_call)):
        begin, end = 0, window.out
        if (axis := cut.get(i + 1)) is not None:
            begin, end = block_call.rows(axis, window.out)
        factors = [window.kernel / window.inside(row) for row in range(begin, end)]
        shape = [end - begin if dim == i + 1 else 1 for dim in range(len(mean.shape))]
        mean *= tf.reshape(tf.constant(factors, mean.dtype), shape)
    return [mean]


@rule(
    keras.layers.AveragePooling1D, keras.layers.AveragePooling2D, keras.layers.AveragePooling3D,
    run=_run_average,
)  # fmt: skip
def average_pooling(layer_call: LayerCall, parts: int) -> Iterator[Way]:
    if is_channels_last(layer_call):
        yield from cuts_in_space(layer_call, parts, windows(layer_call))
        yield from _of_channels(layer_call, parts)


def _run_global(block_call: BlockCall) -> list[Any]:
    (given,) = block_call.plain()
    # A mean over a block counts by its rows.
    for way in block_call.ways.values():
        cut = way.takes[0]
        if way.gives[0] == PARTIAL and cut is not None:
            whole = block_call.layer_call.takes[0][cut.dim]
            rows = block_call.values[block_call.layer_call.call.takes[0]].shape[cut.dim]
            given *= tf.constant(rows / whole, given.dtype)
    return [given]


@rule(
    keras.layers.GlobalAveragePooling1D,
    keras.layers.GlobalAveragePooling2D,
    keras.layers.GlobalAveragePooling3D,
    run=_run_global,
)
def global_average(layer_call: LayerCall, parts: int) -> Iterator[Way]:
    shape = layer_call.takes[0]
    if not is_channels_last(layer_call):
        return
    for dim in layer_call.divisible(shape[:-1], parts):
        yield Way(name_of(len(shape), dim), [Cut(dim)], [PARTIAL])
    yield from _of_channels(layer_call, parts)


def _run_global_max(block_call: BlockCall) -> list[Any]:
    """The largest of what ranks have, all along the axes that cut space."""
    in_space = [axis for axis, way in block_call.ways.items() if way.gives[0] is None]
    if not in_space:
        return block_call.plain()
    layer, value = block_call.layer, block_call.layer_call.call.takes[0]
    over, x = block_call.group(in_space), block_call.values[value]
    dims = list(range(1, len(x.shape) - 1))

    @tf.custom_gradient
    def largest(x: tf.Tensor) -> Any:
        here = tf.reduce_max(x, axis=dims, keepdims=True)
        label, why = f"largest of {layer.name}", Purpose.CONVERSION
        (found,) = ops.allreduce([here], reduction="max", label=label, over=over, purpose=why)

        def gradient(dy: tf.Tensor) -> tf.Tensor:
            # As TensorFlow has it: all that are the largest have a part of it.
            same = tf.cast(tf.equal(x, found), dy.dtype)
            own = tf.reduce_sum(same, axis=dims, keepdims=True)
            back = f"gradient of {label}"
            (count,) = ops.allreduce([own], label=back, over=over, purpose=why)
            return same * (dy / count)

        return found, gradient

    found = largest(x)
    found.set_shape([x.shape[0], *(1 for _ in dims), x.shape[-1]])
    return [found if layer.keepdims else tf.squeeze(found, dims)]


@rule(
    keras.layers.GlobalMaxPooling1D,
    keras.layers.GlobalMaxPooling2D,
    keras.layers.GlobalMaxPooling3D,
    run=_run_global_max,
)
def global_max(layer_call: LayerCall, parts: int) -> Iterator[Way]:
    shape = layer_call.takes[0]
    if not is_channels_last(layer_call):
        return
    for dim in layer_call.divisible(shape[:-1], parts):
        yield Way(name_of(len(shape), dim), [Cut(dim)], [None])
    yield from _of_channels(layer_call, parts)


def _scale(layer_call: LayerCall, dim: int) -> int:
    size: Any = layer_call.layer.size
    return int(size if isinstance(size, int) else size[dim - 1])


def _run_up(block_call: BlockCall) -> list[Any]:
    """Of what it makes of the rows that it takes, this rank's block."""
    (made,) = block_call.plain()
    index = [slice(None)] * len(made.shape)
    for axis, way in block_call.ways.items():
        if (cut := way.takes[0]) is not None and cut.rows:
            begin, end = block_call.rows(axis, block_call.layer_call.gives[0][cut.dim])
            first = cut.rows[block_call.index(axis)][0] * _scale(block_call.layer_call, cut.dim)
            index[cut.dim] = slice(begin - first, end - first)
    return [made[tuple(index)]]


@rule(keras.layers.UpSampling1D, keras.layers.UpSampling2D, keras.layers.UpSampling3D, run=_run_up)
def up_sampling(layer_call: LayerCall, parts: int) -> Iterator[Way]:
    """In blocks of the output, with the rows of the input that they are made of."""
    shape = layer_call.takes[0]
    way = getattr(layer_call.layer, "interpolation", "nearest")
    if not is_channels_last(layer_call):
        return
    for dim in layer_call.divisible(shape[:-1], parts) if way in ("nearest", "bilinear") else []:
        size, scale = shape[dim] or 1, _scale(layer_call, dim)
        rows = tuple(
            between(begin, end, scale, size)
            if way == "bilinear"
            else (begin // scale, (end - 1) // scale + 1)
            for begin, end in blocks(size * scale, parts)
        )
        yield Way(name_of(len(shape), dim), [Cut(dim, rows)], [dim])
    yield from _of_channels(layer_call, parts)


def between(begin: int, end: int, scale: int, size: int) -> Range:
    """The rows of the input between whose middles those of the output lie: row i of the output is
    at (i + 1/2) / scale - 1/2."""
    first = (2 * begin + 1 - scale) // (2 * scale)
    last = (2 * (end - 1) + 1 - scale) // (2 * scale) + 1
    return max(first, 0), min(last, size - 1) + 1
