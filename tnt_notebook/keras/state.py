"""Variables that are neither weights nor of an optimizer, and whose code changes them.

The same from Keras 3.10 to 3.15.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import keras
import tensorflow as tf

from tnt_notebook.keras.graph import layers_within


def state_of_own_layers(model: keras.Model) -> Iterator[keras.Variable]:
    """The state of layers that Keras itself has written, such as moving statistics. Not their
    weights, which a model may have frozen."""
    for layer in layers_within(model):
        if isinstance(layer, keras.layers.BatchNormalization) and layer.built:
            yield layer.moving_mean
            yield layer.moving_variance
        elif is_of_keras(type(layer)):
            yield from layer._non_trainable_variables


def state_of_own_metrics(model: keras.Model) -> Iterator[keras.Variable]:
    """The state of metrics that Keras itself updates, people's subclasses of them among these."""
    for metric in _metrics_within(model.metrics):
        if is_of_keras(type(metric).update_state):
            yield from metric._variables


def may_mix_samples(operation: Any) -> bool:
    """Whether a call of a graph may look at several samples: it is not one of Keras's layers, which
    make of each sample what that sample alone says."""
    return not isinstance(operation, keras.Layer) or any(
        not is_of_keras(type(inner))
        or isinstance(inner, keras.layers.Lambda)
        or inner.activity_regularizer is not None
        for inner in layers_within(operation)
    )


def tensor_of(variable: keras.Variable) -> tf.Variable:
    """What holds its value, in its own dtype also where a layer computes in another one."""
    return variable._value


def _metrics_within(metrics: list[keras.Metric]) -> Iterator[keras.Metric]:
    for metric in metrics:
        yield metric
        yield from _metrics_within(metric._metrics)


def is_of_keras(thing: Any) -> bool:
    """Whether a class or function is Keras's, or this package's."""
    return str(thing.__module__).partition(".")[0] in ("keras", "tnt_notebook")


def draws(operation: Any) -> bool:
    """Whether a layer draws random numbers."""
    return isinstance(operation, keras.Layer) and any(
        isinstance(thing, keras.random.SeedGenerator)
        for layer in layers_within(operation)
        for thing in vars(layer).values()
    )
