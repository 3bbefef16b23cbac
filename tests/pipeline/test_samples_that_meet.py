"""Losses and metrics of people's own that look at several samples of a batch, in stages with
replicas: what ranks make of it is what one process makes of it."""

from __future__ import annotations

from typing import Any

import keras
import pytest
import tensorflow as tf

import tnt_notebook as tnt
from tests.parallel.outcome import Outcome, compare, train
from tests.parallel.test_samples_that_meet import (
    BATCH,
    CLASSES,
    FEATURES,
    data,
    f1,
    hard_negatives,
    ignoring,
    of_sizes,
    r2,
    without_nan,
)
from tests.support.cases import THOROUGH

L, K = keras.layers, keras.ops


def rooted(y: Any, p: Any) -> Any:
    """No mean over samples."""
    return K.sqrt(ignoring(y, p))


class Noisy(L.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.seeds = keras.random.SeedGenerator(4)

    def call(self, x: Any, training: bool = False) -> Any:
        return x + 0.1 * keras.random.normal(K.shape(x), seed=self.seeds) if training else x


class Positions(L.Layer):
    """Rows of a weight that are of no sample: they come once, and not in every micro-batch. Of the
    second weight, as of a table of relative positions, some come several times."""

    def build(self, shape: Any) -> None:
        self.places, self.between = L.Embedding(3, 2), L.Embedding(3, 2)

    def call(self, x: Any) -> Any:
        placed = self.places(tf.range(3)) + self.between(tf.constant([2, 0, 2]))
        return K.reshape(K.reshape(x, (-1, 3, 2)) + placed, (-1, FEATURES))


#: The loss, the schedule, and what is counted.
CASES: dict[str, tuple[Any, str, list[Any]]] = {
    "labels that are ignored": (ignoring, "1f1b", [f1, r2]),
    "labels that lack": (without_nan, "zb-h1", [rooted]),
    "a root": (rooted, "gpipe", [f1]),
    "hard negatives": (hard_negatives, "gpipe", []),
}
DOUBLE: dict[str, tuple[Any, str, list[Any]]] = {"sizes everywhere": (of_sizes, "gpipe", [])}


def run(case: str, distributed: bool) -> Outcome:
    loss, schedule, metrics = {**CASES, **DOUBLE}[case]
    x, y = data()
    if loss is not hard_negatives:  # in the last batch, one replica has no samples
        x, y = x[:25], y[:25]

    def made() -> keras.Model:
        inputs = keras.Input((FEATURES,))
        hidden = L.Dense(FEATURES, "tanh", kernel_regularizer="l2")(inputs)
        hidden = Positions()(hidden)
        model = keras.Model(inputs, L.Dense(CLASSES, "softmax")(hidden))
        model.compile(keras.optimizers.Adam(0.01), loss, metrics=list(metrics))
        return model

    fit = {"x": x, "y": y, "batch_size": BATCH, "epochs": 2, "shuffle": False}
    pipeline = tnt.Pipeline(stages=2, micro_batches=3, schedule=schedule)
    evaluated = {"x": x[:18], "y": y[:18], "batch_size": BATCH}
    return train(made, fit, distributed, evaluated, lambda model: pipeline)


@pytest.mark.parametrize("case", CASES)
def test_what_one_process_makes_of_it(ranks, case):
    compare(ranks, 4, run, case)


def set_dtype(dtype: str) -> None:
    keras.config.set_floatx(dtype)
    keras.config.set_dtype_policy(dtype)


def in_float64(case: str, distributed: bool) -> Outcome:
    set_dtype("float64")
    try:
        return run(case, distributed)
    finally:
        set_dtype("float32")


@pytest.mark.parametrize("case", DOUBLE)
def test_float64_stays_float64(ranks, case):
    compare(ranks, 4, in_float64, case, rtol=1e-9, atol=1e-12)


def drawing(schedule: str, distributed: bool) -> Outcome:
    """Layers that draw; one of them twice, in a stage each, and one of someone's own."""

    def made() -> keras.Model:
        inputs, dropout = keras.Input((FEATURES,)), L.Dropout(0.3)
        hidden = Noisy()(L.Dense(FEATURES, "tanh")(inputs))
        hidden = L.Dense(FEATURES, "tanh", name="second")(dropout(hidden))
        hidden = L.LSTM(4, dropout=0.3)(L.Reshape((FEATURES // 2, 2))(hidden))
        model = keras.Model(inputs, L.Dense(CLASSES)(dropout(hidden)))
        model.compile(keras.optimizers.SGD(0.1), "mse")
        return model

    x = data()[0][:25]  # in the last batch, one replica has no samples
    fit = {"x": x, "y": x[:, :3], "batch_size": BATCH, "epochs": 2, "shuffle": False}
    pipeline = tnt.Pipeline(stages=2, micro_batches=3, schedule=schedule, cut_at=["second"])
    return train(made, fit, distributed, pipeline=lambda model: pipeline)


@pytest.mark.parametrize("schedule", ["1f1b", *["zb-h1", "gpipe"] * THOROUGH])
def test_what_layers_draw_is_what_one_process_draws(ranks, schedule):
    compare(ranks, 4, drawing, schedule)
