"""What Keras itself makes of a sample, made independent of the others: for trials.

What still depends on them is people's own code.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any

import keras
import tensorflow as tf

from tnt_notebook.keras.replaced import replaced

#: Of tf.random: what is drawn without a state from a shape, a seed and more, and which draw so.
_DRAWING = {
    "normal": tf.random.stateless_normal,
    "uniform": tf.random.stateless_uniform,
    "truncated_normal": tf.random.stateless_truncated_normal,
}
_SHUFFLING = ((tf.random, "shuffle"), (tf.random.experimental, "stateless_shuffle"))
_SEED = (1, 2)


@contextlib.contextmanager
def each_sample_alone() -> Iterator[None]:
    """Inside, every sample draws the same random numbers, nothing is shuffled, and batch
    normalization uses its moving statistics."""
    with contextlib.ExitStack() as stack:
        stack.enter_context(replaced(keras.layers.BatchNormalization, "call", _in_inference))
        for name, draw in _DRAWING.items():
            for full, has_seed in ((name, False), (f"stateless_{name}", True)):
                alike = functools.partial(_alike, draw, has_seed)
                stack.enter_context(replaced(tf.random, full, alike))
        for module, name in _SHUFFLING:
            stack.enter_context(replaced(module, name, lambda _, values, *given, **more: values))
        stack.enter_context(replaced(tf.nn.experimental, "stateless_dropout", _dropped_alike))
        yield


def _in_inference(
    call: Callable[..., Any], layer: Any, inputs: Any, training: Any = None, **more: Any
) -> Any:
    return call(layer, inputs, training=False, **more)


def _alike(
    draw: Callable[..., Any], has_seed: bool, _: Any, shape: Any, *given: Any, **more: Any
) -> Any:
    """Draws for one sample, and gives it to all."""
    shape = tf.convert_to_tensor(shape, tf.int32)
    if has_seed and "seed" not in more:
        given = given[1:]
    more = {name: value for name, value in more.items() if name not in ("seed", "name")}
    row = draw(_of_one(shape), _SEED, *given, **more)
    return tf.broadcast_to(row, shape)


def _dropped_alike(
    drop: Callable[..., Any], x: Any, rate: Any, seed: Any, noise_shape: Any = None, **more: Any
) -> Any:
    x = tf.convert_to_tensor(x)
    shape = tf.shape(x) if noise_shape is None else tf.convert_to_tensor(noise_shape, tf.int32)
    return drop(x, rate, _SEED, noise_shape=_of_one(shape), **more)


def _of_one(shape: tf.Tensor) -> tf.Tensor:
    """A shape with one sample."""
    return tf.concat([tf.ones_like(shape[:1]), shape[1:]], 0)
