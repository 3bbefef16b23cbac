"""Layers as a cell would have them, and their rules."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import keras
import tensorflow as tf

import tnt_notebook as tnt


class Gain(keras.layers.Layer):
    """A factor for each channel."""

    def build(self, shape: Any) -> None:
        self.gain = self.add_weight(shape=(shape[-1],), initializer="random_normal", name="gain")

    def call(self, x: Any) -> Any:
        return x * self.gain


@tnt.rule(Gain)
def gain(layer_call: Any, parts: int) -> Iterator[tnt.Way]:
    last = len(layer_call.gives[0]) - 1
    for dim in layer_call.divisible(layer_call.gives[0], parts):
        weights = {id(layer_call.layer.gain): 0} if dim == last else {}
        yield tnt.Way(f"dim {dim}", takes=[tnt.Cut(dim)], gives=[dim], weights=weights)


class Product(keras.layers.Layer):
    """With a kernel, and no bias."""

    def build(self, shape: Any) -> None:
        self.kernel = self.add_weight(shape=(shape[-1], 6), initializer="random_normal")

    def call(self, x: Any) -> Any:
        return x @ self.kernel


@tnt.rule(Product)
def product(layer_call: Any, parts: int) -> Iterator[tnt.Way]:
    last = len(layer_call.gives[0]) - 1
    if parts <= 6:
        yield tnt.Way(
            "columns", takes=[None], gives=[last], weights={id(layer_call.layer.kernel): 1}
        )
    if last in layer_call.divisible(layer_call.takes[0], parts):
        weights = {id(layer_call.layer.kernel): 0}
        yield tnt.Way("rows", takes=[tnt.Cut(last)], gives=["partial"], weights=weights)


class Centred(keras.layers.Layer):
    """Without the mean over channels."""

    def call(self, x: Any) -> Any:
        return x - tf.reduce_mean(x, axis=-1, keepdims=True)


def run_centred(block_call: Any) -> list[Any]:
    axes = block_call.axes("channels")
    if not axes:
        return block_call.plain()
    (value,) = block_call.layer_call.call.takes
    x, channels = block_call.values[value], block_call.layer_call.takes[0][-1]
    mean = block_call.summed(tf.reduce_sum(x, axis=-1, keepdims=True), axes) / channels
    return [x - mean]


@tnt.rule(Centred, run=run_centred)
def centred(layer_call: Any, parts: int) -> Iterator[tnt.Way]:
    last = len(layer_call.gives[0]) - 1
    for dim in layer_call.divisible(layer_call.gives[0], parts):
        name = "channels" if dim == last else f"dim {dim}"
        yield tnt.Way(name, takes=[tnt.Cut(dim)], gives=[dim])
