"""Code of people's own that looks at several samples of a batch, on a mesh with replicas: what
ranks make of it is what one process makes of it."""

from __future__ import annotations

import keras
import pytest

import tnt_notebook as tnt
from tests.parallel.outcome import Outcome, compare, train
from tests.parallel.test_samples_that_meet import BATCH, MODELS, data
from tests.pipeline.models import numbers

L = keras.layers
PAIRS = {".*dense.*": tnt.Split(columns="model")}

#: A model whose layers are not divided.
WHOLE = "its own loss and metrics"


def run(kind: str, distributed: bool) -> Outcome:
    x, y = data()
    fit = {"x": x, "y": y, "batch_size": BATCH, "epochs": 2, "shuffle": False}
    layouts = PAIRS if " " in kind and kind != WHOLE else None
    more = {"mesh": tnt.Mesh(data=2, model=2), "layouts": layouts} if distributed else {}
    evaluated = {"x": x[:18], "y": y[:18], "batch_size": BATCH} if " " in kind else None
    return train(MODELS[kind], fit, distributed, evaluated, more=more)


def normed(distributed: bool) -> Outcome:
    """Statistics of the samples of all replicas, of which each rank has some rows."""
    keras.config.set_dtype_policy("float64")
    try:

        def made() -> keras.Model:
            inputs = keras.Input((8, 6, 2))
            y = L.BatchNormalization()(L.Conv2D(4, 3, padding="same", name="conv")(inputs))
            y = L.BatchNormalization()(L.Conv2D(3, 1)(y))
            model = keras.Model(inputs, L.GlobalAveragePooling2D()(L.ReLU()(y)))
            model.compile(keras.optimizers.Adam(0.01, global_clipnorm=0.1), "mse")
            return model

        x, y = numbers(25, 8, 6, 2), numbers(25, 3, seed=9)
        fit = {"x": x, "y": y, "batch_size": 9, "epochs": 2}
        layouts = {"conv|.*norm.*": tnt.Split(height="height")}
        mesh = tnt.Mesh(data=2, height=2)
        more = {"mesh": mesh, "layouts": layouts, "batch_norm": "whole"} if distributed else {}
        return train(made, fit, distributed, {"x": x, "y": y}, more=more)
    finally:
        keras.config.set_dtype_policy("float32")


def test_batch_norm_of_the_whole_batch(ranks):
    compare(ranks, 4, normed, rtol=1e-6, atol=1e-8)


#: Which rules and others of these have, too.
LONG = (
    "labels that lack",
    "labels in turn",
    "triplets",
    "a share that is kept",
    "centred",
    "remembering",
    "by_hand",
)


@pytest.mark.parametrize(
    "kind",
    [pytest.param(n, marks=pytest.mark.thorough) if n in LONG else n for n in MODELS],
)
def test_what_one_process_makes_of_it(ranks, kind):
    compare(ranks, 4, run, kind)
