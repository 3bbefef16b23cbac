"""What computes each number by itself, or of those in the same place of several values."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tnt_notebook.keras.losses import set_logits
from tnt_notebook.keras.operations import ELEMENTWISE
from tnt_notebook.parallel.layers.activations import is_elementwise
from tnt_notebook.parallel.layers.rule import BlockCall, Cut, LayerCall, Shape, Way, name_of, rule
from tnt_notebook.parallel.layers.rules.activated import OF_LAST, activated
from tnt_notebook.parallel.layers.rules.shared import is_channels_last
from tnt_notebook.parallel.layers.softmax import softmax


def cuts(layer_call: LayerCall, parts: int, dims: list[int]) -> Iterator[Way]:
    """A way for each of some dimensions of the output: of inputs, those that have it are cut."""
    given = layer_call.gives[0]
    if any(len(shape) != len(given) for shape in layer_call.gives):
        return
    for dim in dims:
        yield Way(
            name_of(len(given), dim), [_cut(shape, given, dim) for shape in layer_call.takes],
            [dim] * len(layer_call.gives),
        )  # fmt: skip


def _cut(shape: Shape, given: Shape, dim: int) -> Cut | None:
    """Where a dimension of what is given is, in what is taken; None where it is repeated."""
    own = dim - (len(given) - len(shape))
    return Cut(own) if own >= 0 and shape[own] == given[dim] else None


@rule(
    keras.layers.Add, keras.layers.Average, keras.layers.ELU, keras.layers.Identity,
    keras.layers.LeakyReLU, keras.layers.Maximum, keras.layers.Minimum, keras.layers.Multiply,
    keras.layers.ReLU, keras.layers.Subtract,
)  # fmt: skip
def elementwise(layer_call: LayerCall, parts: int) -> Iterator[Way]:
    yield from cuts(layer_call, parts, layer_call.divisible(layer_call.gives[0], parts))


def _run_rescaling(block_call: BlockCall) -> list[Any]:
    """Where numbers have their own scales, those of the block."""
    shape, own = block_call.layer_call.takes[0], {}
    for name in ("scale", "offset"):
        numbers = np.asarray(getattr(block_call.layer, name))
        index = [slice(None)] * numbers.ndim
        for axis, way in block_call.ways.items():
            cut = way.takes[0]
            dim = -1 if cut is None else cut.dim - (len(shape) - numbers.ndim)
            if cut is not None and dim >= 0 and numbers.shape[dim] != 1:
                index[dim] = slice(*block_call.rows(axis, shape[cut.dim]))
        given = numbers[tuple(index)]
        # Keras rounds numbers of Python, and not those of NumPy.
        is_array = isinstance(getattr(block_call.layer, name), np.ndarray)
        own[name] = given if is_array else given.tolist()
    return block_call.plain(**own)


@rule(keras.layers.Rescaling, run=_run_rescaling)
def rescaling(layer_call: LayerCall, parts: int) -> Iterator[Way]:
    single = not np.ndim(layer_call.layer.scale) and not np.ndim(layer_call.layer.offset)
    if single or keras.config.image_data_format() == "channels_last":
        yield from elementwise(layer_call, parts)


@rule(*ELEMENTWISE)
def operation(layer_call: LayerCall, parts: int) -> Iterator[Way]:
    """Of keras.ops, where what is no value of the model is a number."""
    bounds = [getattr(layer_call.layer, name, None) for name in ("x_min", "x_max")]
    if all(isinstance(constant, _SINGLE) for constant in (*layer_call.call.others, *bounds)):
        yield from cuts(layer_call, parts, layer_call.divisible(layer_call.gives[0], parts))


_SINGLE = (int, float, str, np.generic, type(None))


def _run_noise(block_call: BlockCall) -> list[Any]:
    """What is added or multiplied is what the layer makes of zeros or ones."""
    if not block_call.training:
        return block_call.plain()
    call, shape = block_call.layer_call.call, block_call.layer_call.takes[0]
    value, given = call.takes[0], call.gives[0]
    x, is_added = block_call.values[value], isinstance(block_call.layer, keras.layers.GaussianNoise)
    once = range(1, len(shape) - 1) if isinstance(block_call.layer, _SPATIAL) else ()
    sizes = [1 if dim in once else size for dim, size in enumerate(shape)]
    whole = tf.fill(
        [tf.shape(x)[dim] if not dim or size is None else size for dim, size in enumerate(sizes)],
        tf.constant(0 if is_added else 1, x.dtype),
    )
    whole.set_shape([None, *sizes[1:]])

    def draw(like: tf.Tensor) -> tf.Tensor:
        values = {value: like}
        call.run(values, training=True)
        return values[given]

    dims = ((way.gives[0], axis) for axis, way in block_call.ways.items())
    cut = [(dim, axis) for dim, axis in dims if isinstance(dim, int) and dim not in once]
    noise = block_call.drawn(draw, whole, cut)
    return [x + noise if is_added else x * noise]


_SPATIAL = (
    keras.layers.SpatialDropout1D, keras.layers.SpatialDropout2D, keras.layers.SpatialDropout3D,
)  # fmt: skip


@rule(*_SPATIAL, run=_run_noise)
def spatial_dropout(layer_call: LayerCall, parts: int) -> Iterator[Way]:
    if is_channels_last(layer_call) and layer_call.takes[0][-1]:
        yield from elementwise(layer_call, parts)


@rule(
    keras.layers.Dropout, keras.layers.GaussianDropout, keras.layers.GaussianNoise, run=_run_noise
)  # fmt: skip
def noise(layer_call: LayerCall, parts: int) -> Iterator[Way]:
    if getattr(layer_call.layer, "noise_shape", None) is None:
        yield from elementwise(layer_call, parts)


@rule(keras.layers.PReLU)
def prelu(layer_call: LayerCall, parts: int) -> Iterator[Way]:
    alpha, given = layer_call.layer.alpha, layer_call.gives[0]
    for way in cuts(layer_call, parts, layer_call.divisible(given, parts)):
        (dim,) = way.gives
        if isinstance(dim, int) and alpha.shape[dim - 1] > 1:
            way = replace(way, weights={id(alpha): dim - 1})
        yield way


def _run_activation(block_call: BlockCall) -> list[Any]:
    layer, value = block_call.layer, block_call.layer_call.call.takes[0]
    looks_at = _looks_at(layer, len(block_call.layer_call.gives[0]))
    over = [axis for axis, way in block_call.ways.items() if way.gives[0] in looks_at]
    if not over:
        return block_call.plain()
    x = block_call.values[value]
    if isinstance(layer, keras.layers.Softmax):
        result = softmax(x, looks_at, block_call.group(over), f"softmax of {layer.name}")
        set_logits(result, x)
        return [result]
    return [activated(block_call, x, over)]


def _looks_at(layer: Any, rank: int) -> list[int]:
    """The dimensions along which it does not look at numbers one by one: of Keras's own functions
    those that do not look at the last one."""
    if isinstance(layer, keras.layers.Softmax):
        axes = layer.axis if isinstance(layer.axis, (list, tuple)) else [layer.axis]
        return [axis % rank for axis in axes]
    return [] if is_elementwise(layer.activation) else [rank - 1]


@rule(keras.layers.Activation, keras.layers.Softmax, run=_run_activation)
def activation(layer_call: LayerCall, parts: int) -> Iterator[Way]:
    layer, given = layer_call.layer, layer_call.gives[0]
    looks_at = _looks_at(layer, len(given))
    dims = layer_call.divisible(given, parts)
    function = getattr(layer, "activation", keras.activations.softmax)
    if looks_at and (function not in OF_LAST or len(layer_call.takes) > 1):
        dims = [dim for dim in dims if dim not in looks_at]
    yield from cuts(layer_call, parts, dims)
