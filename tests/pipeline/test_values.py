"""What goes from stage to stage: training is that of one process."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers

import tnt_notebook as tnt
from tests.parallel.outcome import Outcome, assert_identical, assert_same, train
from tests.pipeline.models import numbers
from tnt_notebook.errors import ModelError

SAMPLES = 25  # in batches of 10 the last is smaller than the others


def with_few_weights() -> keras.Model:
    """Stages at both ends, and in the middle, have nothing to train."""
    x = inputs = keras.Input((8,))
    x = layers.Rescaling(0.5, name="scaled")(x)
    x = layers.Dense(12, "tanh", name="first")(x)
    x = layers.Activation("tanh", name="middle")(x)
    x = layers.Dense(3, name="last")(x)
    return keras.Model(inputs, layers.Activation("sigmoid", name="end")(x))


def with_frozen_layers() -> keras.Model:
    """As in transfer learning."""
    x = inputs = keras.Input((8,))
    x = layers.Dense(12, "tanh", name="frozen", trainable=False)(x)
    x = layers.BatchNormalization(name="frozen_too", trainable=False)(x)
    x = layers.Dense(12, "tanh", name="first")(x)
    x = layers.Dense(12, "tanh", name="between", trainable=False)(x)
    return keras.Model(inputs, layers.Dense(3, name="last")(x))


class Joined(layers.Layer):
    """Values of any dtypes, as float32 side by side."""

    def call(self, values: Any) -> Any:
        return keras.ops.concatenate([keras.ops.cast(v, "float32") for v in values], -1)

    def compute_output_spec(self, values: Any) -> keras.KerasTensor:
        return keras.KerasTensor((*values[0].shape[:-1], sum(v.shape[-1] for v in values)))


DTYPES = ("uint8", "int8", "int16", "uint16", "int32", "uint32", "int64", "float16", "bfloat16")


def with_many_dtypes() -> keras.Model:
    """Between the layers "first" and "joined" are numbers of all dtypes, and truth values."""
    inputs = keras.Input((8,))
    x = layers.Dense(6, "tanh", name="first")(inputs)
    size = keras.ops.abs(x) * 100
    values = [x, x > 0, keras.ops.cast(x, "float64"), *(keras.ops.cast(size, d) for d in DTYPES)]
    x = layers.BatchNormalization(trainable=False)(Joined(name="joined")(values) / 100)
    return keras.Model(inputs, layers.Dense(3, name="last")(x))


MODELS: dict[str, Any] = {
    "few weights": with_few_weights,
    "frozen layers": with_frozen_layers,
    "many dtypes": with_many_dtypes,
}


def run(
    name: str,
    cut_at: tuple[str, ...] | None,
    optimizer: tuple[str, dict[str, Any]] = ("Adam", {"learning_rate": 0.01}),
    **options: Any,
) -> Outcome:
    """Trains a model in stages that begin with these layers; None: with Keras alone."""

    def compiled() -> keras.Model:
        model = MODELS[name]()
        kind, arguments = optimizer
        model.compile(getattr(keras.optimizers, kind)(**arguments), "mse", metrics=["mae"])
        return model

    def pipeline(model: keras.Model) -> tnt.Pipeline:
        stages = len(cut_at) + 1
        return tnt.Pipeline(**{"stages": stages, "micro_batches": 3, "cut_at": cut_at, **options})

    x, y = numbers(SAMPLES, 8), numbers(SAMPLES, 3, seed=9)
    fit = {"x": x, "y": y, "batch_size": 10, "epochs": 2, "validation_data": (x, y)}
    evaluate = {"x": x, "y": y, "batch_size": 7}
    return train(compiled, fit, cut_at is not None, evaluate, pipeline)


_plain: dict[str, Outcome] = {}


def compare(ranks, n, name, cut_at, *optimizer, tolerance=None, **options):
    key = str((name, *optimizer))
    if key not in _plain:
        (_plain[key],) = ranks.run(1, run, name, None, *optimizer)
    outcomes = ranks.run(n, run_with, name, cut_at, optimizer, options)
    assert_same(outcomes[0], _plain[key], **(tolerance or {}))
    assert_identical(outcomes)
    for ours, theirs in zip(outcomes[0].optimizer, _plain[key].optimizer, strict=True):
        np.testing.assert_allclose(ours, theirs, 1e-4, 1e-6)


def run_with(name, cut_at, optimizer, options):
    return run(name, cut_at, *optimizer, **options)


CLIPPED = ("SGD", {"learning_rate": 0.1, "momentum": 0.9, "global_clipnorm": 0.05})


@pytest.mark.parametrize("schedule", ["gpipe", "1f1b", "zb-h1"])
@pytest.mark.parametrize("cut_at", [("first",), ("end",), ("middle", "last")], ids=str)
def test_stages_without_weights(ranks, cut_at, schedule):
    compare(ranks, len(cut_at) + 1, "few weights", cut_at, schedule=schedule)


@pytest.mark.parametrize("cut_at", [("first",), ("end",), ("middle", "last")], ids=str)
def test_clipping_needs_ranks_without_weights_too(ranks, cut_at):
    compare(ranks, len(cut_at) + 1, "few weights", cut_at, CLIPPED)


def test_replicas_of_stages_without_weights(ranks):
    compare(ranks, 4, "few weights", ("end",))


@pytest.mark.parametrize("schedule", ["1f1b", "zb-h1"])
@pytest.mark.parametrize(
    "cut_at", [("frozen_too",), ("first",), ("between", "last"), ("frozen_too", "first")], ids=str
)
def test_frozen_layers(ranks, cut_at, schedule):
    compare(ranks, len(cut_at) + 1, "frozen layers", cut_at, schedule=schedule)


def a_cut_that_is_found(name):
    return run(name, "auto", stages=3)


@pytest.mark.parametrize("name", MODELS)
def test_a_cut_that_is_found_needs_no_weights(ranks, name):
    (plain,) = ranks.run(1, run, name, None)
    outcomes = ranks.run(3, a_cut_that_is_found, name)
    assert_same(outcomes[0], plain)
    assert_identical(outcomes)


@pytest.mark.parametrize("schedule", ["1f1b", "zb-h1"])
def test_values_of_all_dtypes(ranks, schedule):
    compare(ranks, 2, "many dtypes", ("joined",), schedule=schedule)


def with_text() -> keras.Model:
    inputs = keras.Input((), dtype="string")
    x = layers.Lambda(tf.strings.lower, output_shape=(), dtype="string", name="lower")(inputs)
    x = layers.StringLookup(vocabulary=["a", "b"], name="lookup")(x)
    return keras.Model(inputs, layers.Dense(3)(layers.Embedding(3, 4)(x)))


def refused(make, cut_at, x):
    model = make()
    model.compile("sgd", "mse")
    with pytest.raises(ModelError) as raised:
        trained = tnt.Model(model, pipeline=tnt.Pipeline(2, 2, cut_at=cut_at))
        trained.fit(tf.constant(x), numbers(2, 3), verbose=0)
    return str(raised.value)


def test_text_between_stages_is_refused(ranks):
    here, there = ranks.run(2, refused, with_text, ("lookup",), ["a", "B"])
    assert here == there
    assert "from another stage, whose dtype is string" in here


def thawed(cut_at):
    """Trained, then all of it trained with another loss: as in fine-tuning."""
    keras.utils.set_random_seed(7)
    model = with_frozen_layers()
    trained = model
    if cut_at is not None:
        trained = tnt.Model(model, pipeline=tnt.Pipeline(2, 2, cut_at=cut_at))
    x, y = numbers(SAMPLES, 8), numbers(SAMPLES, 3, seed=9)
    model.compile(keras.optimizers.SGD(0.1), "mse")
    first = trained.fit(x, y, epochs=1, batch_size=10, shuffle=False, verbose=0)
    for name in ("frozen", "between"):
        model.get_layer(name).trainable = True
    model.compile(keras.optimizers.Adam(0.01), "mae")
    second = trained.fit(x, y, epochs=2, batch_size=10, shuffle=False, verbose=0)
    losses = [*first.history["loss"], *second.history["loss"]]
    return losses, [np.asarray(w) for w in model.get_weights()]


def test_a_model_that_is_compiled_again_goes_by_its_new_loss_and_weights(ranks):
    ((losses, weights),) = ranks.run(1, thawed, None)
    for ours, found in ranks.run(2, thawed, ("first",)):
        np.testing.assert_allclose(ours, losses, 2e-5)
        for a, b in zip(found, weights, strict=True):
            np.testing.assert_allclose(a, b, 2e-5, 2e-6)
