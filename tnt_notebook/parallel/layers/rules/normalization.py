"""Normalization: statistics over the axes that cut what they are of."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator
from typing import Any

import keras
import tensorflow as tf

from tnt_notebook.keras.losses import moments_replaced
from tnt_notebook.keras.tensorflow import wide
from tnt_notebook.parallel.graph.marks import of_own_samples
from tnt_notebook.parallel.layers.rule import SAME, BlockCall, Cut, LayerCall, Way, name_of, rule
from tnt_notebook.parallel.layers.rules.elementwise import cuts


def _run(block_call: BlockCall) -> list[Any]:
    layer = block_call.layer
    mean = id(layer.moving_mean)
    axes = [axis for axis, way in block_call.ways.items() if way.weights[mean] == SAME]
    if not axes:
        return block_call.plain()
    moments = _moments_over(block_call, axes)
    of_all = layer.synchronized or not block_call.by_rank
    with moments_replaced(moments if of_all else _of_own_samples(moments)):
        return block_call.plain(synchronized=True)


def _of_own_samples(moments: Callable[..., Any]) -> Callable[..., Any]:
    def of_own(x: tf.Tensor, axes: Any, keepdims: bool) -> list[tf.Tensor]:
        return of_own_samples(lambda own: moments(own, axes, keepdims), x, None)

    return of_own


def _moments_over(block_call: BlockCall, of: list[str]) -> Callable[..., Any]:
    """Mean and variance of parts that ranks along some axes of the mesh have: in two exchanges, the
    mean first, then the squared distances from it, which loses no digits where the mean is large.
    """
    summed = functools.partial(block_call.summed, axes=of)

    def moments(x: tf.Tensor, axes: Any, keepdims: bool) -> tuple[tf.Tensor, tf.Tensor]:
        count = tf.cast(tf.size(x), x.dtype)
        channels = tf.cast(tf.size(tf.reduce_sum(x, axis=axes)), x.dtype)
        count = summed(count / channels)
        total = summed(tf.reduce_sum(x, axis=axes, keepdims=True))
        mean = total / count
        distance = tf.reduce_sum(tf.square(x - mean), axis=axes, keepdims=True)
        variance = summed(distance) / count
        if not keepdims:
            mean, variance = tf.squeeze(mean, axes), tf.squeeze(variance, axes)
        return mean, variance

    return moments


@rule(keras.layers.BatchNormalization, run=_run)
def batch_normalization(layer_call: LayerCall, parts: int) -> Iterator[Way]:
    layer, (shape, *masks) = layer_call.layer, layer_call.takes
    channels = layer.axis % len(shape)
    if masks:
        return
    moving = [layer.moving_mean, layer.moving_variance]
    for dim in layer_call.divisible(shape, parts):
        if dim != channels:
            weights: dict[int, Any] = {id(v): SAME for v in moving}
            yield Way(name_of(len(shape), dim), [Cut(dim)], [dim], weights)
        else:
            own = [v for v in (layer.gamma, layer.beta, *moving) if v is not None]
            yield Way("channels", [Cut(dim)], [dim], {id(v): 0 for v in own})


def _axes_of(layer: Any, rank: int) -> list[int]:
    axes = layer.axis if isinstance(layer.axis, (list, tuple)) else [layer.axis]
    return [axis % rank for axis in axes]


def _wide(x: tf.Tensor) -> tf.Tensor:
    """In float32 at least: sums of squares are large."""
    return tf.cast(x, wide(x.dtype))


def _scaled(x: tf.Tensor, factor: Any, offset: Any, shape: list[int]) -> tf.Tensor:
    """Multiplied and shifted by weights, which have these dimensions beside ones."""
    if factor is not None:
        x *= tf.reshape(tf.cast(factor, x.dtype), shape)
    return x if offset is None else x + tf.reshape(tf.cast(offset, x.dtype), shape)


def _run_layer(block_call: BlockCall) -> list[Any]:
    layer, features = block_call.layer, block_call.axes("features")
    if not features:
        return block_call.plain()
    given = block_call.values[block_call.layer_call.call.takes[0]]
    x, dims = _wide(given), _axes_of(layer, len(given.shape))
    mean, variance = _moments_over(block_call, features)(x, dims, True)
    shape = [x.shape[dim] if dim in dims else 1 for dim in range(len(x.shape))]
    normal = (x - mean) * tf.math.rsqrt(variance + layer.epsilon)
    return [tf.cast(_scaled(normal, layer.gamma, layer.beta, shape), given.dtype)]


@rule(keras.layers.LayerNormalization, run=_run_layer)
def layer_normalization(layer_call: LayerCall, parts: int) -> Iterator[Way]:
    """Along the dimensions of which there are no statistics, and along the others, the features."""
    layer, shape = layer_call.layer, layer_call.takes[0]
    dims = _axes_of(layer, len(shape))
    if len(layer_call.takes) > 1:
        return
    for dim in layer_call.divisible(shape, parts):
        if dim not in dims:
            yield Way(name_of(len(shape), dim), [Cut(dim)], [dim])
        elif dims == sorted(dims) and not layer.rms_scaling:
            own = [v for v in (layer.gamma, layer.beta) if v is not None]
            yield Way("features", [Cut(dim)], [dim], {id(v): dims.index(dim) for v in own})


def _run_rms(block_call: BlockCall) -> list[Any]:
    layer, features = block_call.layer, block_call.axes("features")
    if not features:
        return block_call.plain()
    given = block_call.values[block_call.layer_call.call.takes[0]]
    x, whole = _wide(given), block_call.layer_call.takes[0][-1]
    assert whole is not None  # it is cut
    squares = tf.reduce_sum(tf.square(x), axis=-1, keepdims=True)
    mean = block_call.summed(squares, features) / whole
    scaled = x * tf.math.rsqrt(mean + layer.epsilon) * tf.cast(layer.scale, x.dtype)
    return [tf.cast(scaled, given.dtype)]


@rule(keras.layers.RMSNormalization, run=_run_rms)
def rms_normalization(layer_call: LayerCall, parts: int) -> Iterator[Way]:
    layer, shape = layer_call.layer, layer_call.takes[0]
    last = len(shape) - 1
    if len(layer_call.takes) > 1 or _axes_of(layer, len(shape)) != [last]:
        return
    for dim in layer_call.divisible(shape, parts):
        if dim != last:
            yield Way(name_of(len(shape), dim), [Cut(dim)], [dim])
        else:
            yield Way("features", [Cut(dim)], [dim], {id(layer.scale): 0})


def _run_groups(block_call: BlockCall) -> list[Any]:
    layer = block_call.layer
    groups = layer.groups // block_call.ranks.mesh.along_all(block_call.axes("channels"))
    in_space = [axis for axis, way in block_call.ways.items() if way.name != "channels"]
    if not in_space:
        return block_call.plain(groups=groups)
    given = block_call.values[block_call.layer_call.call.takes[0]]
    x = _wide(given)
    # Of each sample and group the mean over its block, of which the ranks have other rows.
    by_group = tf.reshape(x, [tf.shape(x)[0], -1, groups, x.shape[-1] // groups])
    whole = math.prod(
        block_call.layer_call.takes[0][dim] or 1 for dim in range(1, len(x.shape) - 1)
    )
    summed = functools.partial(block_call.summed, axes=in_space)

    def mean_of(y: tf.Tensor) -> tf.Tensor:
        return summed(tf.reduce_sum(y, axis=[1, 3], keepdims=True)) / (whole * y.shape[3])

    away = by_group - mean_of(by_group)
    normal = away * tf.math.rsqrt(mean_of(tf.square(away)) + layer.epsilon)
    normal = tf.reshape(normal, tf.shape(x))
    normal.set_shape(x.shape)
    return [tf.cast(_scaled(normal, layer.gamma, layer.beta, [-1]), given.dtype)]


@rule(keras.layers.GroupNormalization, run=_run_groups)
def group_normalization(layer_call: LayerCall, parts: int) -> Iterator[Way]:
    """By groups of channels; and, channels last, in space."""
    layer, shape = layer_call.layer, layer_call.takes[0]
    channels = layer.axis % len(shape) if isinstance(layer.axis, int) else None
    if channels is None or len(layer_call.takes) > 1:
        return
    if channels == len(shape) - 1 and all(shape[1:]):
        for dim in layer_call.divisible(shape[:-1], parts):
            yield Way(name_of(len(shape), dim), [Cut(dim)], [dim])
    if layer.groups % parts == 0:
        own = [v for v in (layer.gamma, layer.beta) if v is not None]
        yield Way("channels", [Cut(channels)], [channels], {id(v): 0 for v in own})


def _run_adapted(block_call: BlockCall) -> list[Any]:
    layer, index = block_call.layer, [slice(None)] * len(block_call.layer_call.takes[0])
    for axis, way in block_call.ways.items():
        cut = way.takes[0]
        if cut is not None and layer.mean.shape[cut.dim] != 1:
            index[cut.dim] = slice(*block_call.rows(axis, block_call.layer_call.takes[0][cut.dim]))
    at = tuple(index)
    return block_call.plain(mean=layer.mean[at], variance=layer.variance[at])


@rule(keras.layers.Normalization, run=_run_adapted)
def adapted_normalization(layer_call: LayerCall, parts: int) -> Iterator[Way]:
    """By mean and variance that are known: each number by itself."""
    if len(layer_call.takes) == 1 and len(layer_call.layer.mean.shape) == len(layer_call.takes[0]):
        yield from cuts(layer_call, parts, layer_call.divisible(layer_call.gives[0], parts))
