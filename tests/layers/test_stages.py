"""Training in stages whose layers are divided is that of one process, on meshes with and without
replicas."""

from typing import Any

import keras
import pytest

import tnt_notebook as tnt
from tests.parallel.outcome import Outcome, close, compare, train
from tests.pipeline.models import numbers

L = keras.layers


def mlp() -> keras.Model:
    hidden = L.Dense(10, "relu", kernel_regularizer="l2", name="first")
    return keras.Sequential(
        [keras.Input((6,)), hidden, L.Dense(7, name="second"), L.Dense(3, name="last")]
    )


def deep() -> keras.Model:
    """Convolutions, with weights that two stages share."""
    x = keras.Input((9, 6, 2))
    y = L.Conv2D(4, 3, padding="same", name="conv_1", kernel_regularizer="l2")(x)
    twice = L.Conv2D(4, 3, padding="same", name="conv_2")
    y = L.Add(name="add")([y, twice(y)])
    y = L.MaxPooling2D(2, name="pool")(twice(y))
    return keras.Model(x, L.Dense(3, name="last")(L.GlobalAveragePooling2D(name="pool_all")(y)))


PAIR = {"first": tnt.Split(columns="model"), "second": tnt.Split(rows="model")}
IN_SPACE = {"conv.*|pool": tnt.Split(height="height")}
FILTERS = {"conv_1": tnt.Split(filters="model"), "conv_2": tnt.Split(channels="model")}
CASES: dict[str, tuple[Any, ...]] = {
    "a pair in one stage": (
        mlp, tnt.Mesh(stage=2, model=2), PAIR, {"global_clipnorm": 0.05}, {"cut_at": ["last"]},
    ),
    "a pair over the cut": (
        mlp, tnt.Mesh(model=2, stage=2), PAIR, {"clipnorm": 0.05},
        {"cut_at": ["second"], "schedule": "zb-h1"},
    ),
    "in space": (deep, tnt.Mesh(stage=2, height=2), IN_SPACE, {}, {"cut_at": ["add"]}),
    "in space, on three": (
        deep, tnt.Mesh(height=3), IN_SPACE, {}, {"stages": 1, "recompute": True},
    ),
    "filters and channels": (
        deep, tnt.Mesh(stage=2, model=2), FILTERS, {}, {"cut_at": ["add"], "recompute": True},
    ),
    "with replicas": (
        deep, tnt.Mesh(data=2, stage=1, model=2), FILTERS, {"clipnorm": 0.05}, {},
    ),
    "of two axes": (
        deep, tnt.Mesh(stage=1, height=2, model=2),
        {"conv_1": tnt.Split(height="height", filters="model")}, {}, {"schedule": "gpipe"},
    ),
}  # fmt: skip


def fitted(name: str, distributed: bool) -> Outcome:
    make, mesh, layouts, options, pipeline = CASES[name]
    keras.config.set_floatx("float64")
    keras.config.set_dtype_policy("float64")
    try:

        def compiled() -> keras.Model:
            model = make()
            model.compile(keras.optimizers.Adam(0.01, **options), "mse", metrics=["mae"])
            return model

        x, y = numbers(25, *make().input_shape[1:]), numbers(25, 3, seed=9)
        fit = {"x": x, "y": y, "batch_size": 10, "epochs": 2, "validation_data": (x, y)}
        stages = {"stages": mesh.along("stage"), "micro_batches": 3, **pipeline}
        return train(
            compiled, fit, distributed, {"x": x, "y": y, "batch_size": 7},
            pipeline=lambda _: tnt.Pipeline(**stages), more={"mesh": mesh, "layouts": layouts},
        )  # fmt: skip
    finally:
        keras.config.set_floatx("float32")
        keras.config.set_dtype_policy("float32")


LONG = (
    "a pair in one stage", "in space", "with replicas", "of two axes", "in space, on three",
)  # fmt: skip


@pytest.mark.core
@pytest.mark.parametrize(
    "name",
    [pytest.param(n, marks=pytest.mark.thorough) if n in LONG else n for n in CASES],
)
def test_fit(ranks, name):
    size = CASES[name][1].size
    ours, theirs = compare(ranks, size, fitted, name, rtol=1e-7, atol=1e-9)
    close(ours.optimizer, theirs.optimizer, 1e-7, 1e-9)
