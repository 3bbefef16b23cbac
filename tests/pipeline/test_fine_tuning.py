"""Models of which only a part is trained: LoRA, also of quantized weights, and frozen layers."""

from __future__ import annotations

import keras
import numpy as np
import pytest
from keras import layers

import tnt_notebook as tnt
from tests.parallel import outcome
from tests.parallel.outcome import Outcome, train
from tests.pipeline.models import numbers

WORDS = np.random.default_rng(0).integers(0, 11, (25, 6)).astype("int32")
LOSS = keras.losses.SparseCategoricalCrossentropy(from_logits=True)


def with_lora(quantized: bool) -> keras.Model:
    """Of each kind of layer that takes it: what is trained are its two small matrices."""
    words = keras.Input((6,), dtype="int32")
    x = layers.Embedding(11, 8)(words)
    x = layers.EinsumDense("abc,cd->abd", (None, 8), bias_axes="d")(x)
    x = layers.Dense(8, "tanh", name="hidden")(x)
    model = keras.Model(words, layers.Dense(11)(x))
    if quantized:
        model.quantize("int8")
    for variable in model.trainable_variables:
        variable.trainable = False
    for layer in model.layers[1:]:
        layer.enable_lora(rank=2)
    assert len(model.trainable_variables) == 2 * 4
    return model


def with_frozen_layers() -> keras.Model:
    """A model that another one has learned with, and new layers after it."""
    images = keras.Input((8, 8, 3))
    x = layers.BatchNormalization()(layers.Conv2D(4, 3)(images))
    learned = keras.Model(images, layers.GlobalAveragePooling2D()(layers.ReLU()(x)))
    learned.trainable = False
    images = keras.Input((8, 8, 3))
    x = layers.Dense(16, "tanh", name="hidden")(learned(images))
    return keras.Model(images, layers.Dense(3)(x))


def run(kind: str, schedule: str) -> Outcome:
    """Trains in two stages by a schedule, data parallel, or with Keras alone."""

    def compiled() -> keras.Model:
        model = with_frozen_layers() if kind == "frozen" else with_lora(kind == "quantized")
        model.compile(keras.optimizers.Adam(0.02), LOSS, metrics=["accuracy"])
        return model

    def pipeline(model: keras.Model) -> tnt.Pipeline:
        return tnt.Pipeline(2, 3, schedule, cut_at=("hidden",))

    x, y = (
        (numbers(25, 8, 8, 3), np.arange(25) % 3) if kind == "frozen" else (WORDS, WORDS[:, ::-1])
    )
    fit = {"x": x, "y": y, "batch_size": 10, "epochs": 3}
    staged = None if schedule in ("alone", "parallel") else pipeline
    return train(compiled, fit, schedule != "alone", pipeline=staged)


@pytest.mark.parametrize(
    ("kind", "way"), [("lora", "parallel"), ("quantized", "zb-h1"), ("frozen", "1f1b")]
)
def test_what_is_trained_of_a_model_is_as_on_one_process(ranks, kind, way):
    ours, _ = outcome.compare(ranks, 2, run, kind, way, alone=(kind, "alone"))
    trained = 4 if kind == "frozen" else 2 * 4  # variables, each with two moments of Adam
    assert len(ours.optimizer) == 2 + 2 * trained
