"""Whole networks on a mesh learn what they learn in one process: weights, history, predictions, and
what optimizers keep, in float64."""

import functools
from pathlib import Path
from typing import Any, NamedTuple

import keras
import numpy as np
import pytest

import tnt_notebook as tnt
from tests.layers import networks
from tests.parallel.outcome import Outcome, close, compare, train
from tnt_notebook.plan.mesh import Layouts, Mesh

CROSS_ENTROPY = "sparse_categorical_crossentropy"
SCORES = keras.losses.SparseCategoricalCrossentropy(from_logits=True)


def sgd() -> keras.Optimizer:
    return keras.optimizers.SGD(0.05, momentum=0.9)


def adam() -> keras.Optimizer:
    return keras.optimizers.Adam(0.01, clipnorm=0.1)


def rmsprop() -> keras.Optimizer:
    return keras.optimizers.RMSprop(0.005, rho=0.8)


class Case(NamedTuple):
    """A network on a mesh.

    Attributes:
        loss: a name, or one with labels.
        layouts: of some layers; None, all by their costs.
    """

    make: networks.Make
    mesh: Mesh
    optimizer: Any
    loss: Any = "mse"
    layouts: Layouts | None = None
    samples: int = 7
    batch_size: int = 4
    dtype: str = "float64"
    rtol: float = 1e-7


def in_space(*axes: str) -> Layouts:
    return {"conv.*|max_pooling.*": tnt.Split(**{axis: axis for axis in axes})}


def transformer(tied: str, mesh: Mesh, layouts: Layouts | None = None) -> Case:
    make = functools.partial(networks.transformer, tied)
    return Case(make, mesh, adam, SCORES, layouts)


DEPTH = in_space("depth")
HEADS = {
    "multi_head.*": tnt.Split(heads="model"), "wide.*": tnt.Split(columns="model"),
    "narrow.*": tnt.Split(rows="model"),
}  # fmt: skip
CONVOLUTIONS = {"conv.*": tnt.Split(filters="model")}

CASES: dict[str, Case] = {
    # Adam divides small gradients by their own size, and so their rounding, too.
    "unet, small": Case(networks.small_unet, Mesh(depth=2), adam, CROSS_ENTROPY, DEPTH, rtol=1e-6),
    "unet, depth": Case(networks.unet, Mesh(depth=2), adam, CROSS_ENTROPY, DEPTH, rtol=1e-6),
    "unet, depth 3": Case(networks.unet, Mesh(depth=3), sgd, CROSS_ENTROPY),
    "unet, replicas": Case(networks.unet, Mesh(data=2, depth=2), rmsprop, CROSS_ENTROPY, DEPTH),
    "unet, two axes": Case(
        networks.unet, Mesh(depth=2, height=2), sgd, CROSS_ENTROPY, in_space("depth", "height"),
    ),
    "unet, any axis": Case(networks.unet, Mesh(model=2), adam, CROSS_ENTROPY, rtol=1e-6),
    # In 32 bits, where one process with other kernels comes to weights that are 2e-4 away.
    "unet, pooled": Case(
        networks.pooled_unet, Mesh(depth=2, width=2), sgd, CROSS_ENTROPY, samples=6,
        dtype="float32", rtol=5e-3,
    ),
    "vgg, height": Case(networks.vgg, Mesh(height=2), rmsprop, layouts=in_space("height")),
    "vgg, filters": Case(networks.vgg, Mesh(model=3), adam, layouts=CONVOLUTIONS),
    "vgg, two axes": Case(
        networks.vgg, Mesh(height=2, model=2), sgd,
        layouts={"conv.*": tnt.Split(height="height", filters="model")},
    ),
    "vgg, replicas": Case(networks.vgg, Mesh(data=2, model=2), rmsprop),
    "resnet, height": Case(networks.resnet, Mesh(height=3), adam, layouts=in_space("height")),
    "resnet, replicas": Case(
        networks.resnet, Mesh(data=2, width=2), sgd, layouts=in_space("width")
    ),
    "resnet, two axes": Case(networks.resnet, Mesh(height=2, width=2), rmsprop),
    "resnet-50, frozen": Case(
        networks.frozen_resnet50, Mesh(height=2), sgd, CROSS_ENTROPY, samples=4, batch_size=2,
    ),
    "resnet-50, synchronized": Case(
        networks.synchronized_resnet50, Mesh(data=2, height=2), sgd, CROSS_ENTROPY, samples=6,
    ),
    "transformer, heads": transformer("itself", Mesh(model=2), HEADS),
    "transformer, tied by a layer": transformer("layer", Mesh(model=2)),
    "transformer, replicas": transformer("operation", Mesh(data=2, model=2), HEADS),
    "mlp, any axis": Case(networks.mlp, Mesh(model=3), rmsprop),
    "mlp, two axes": Case(
        networks.mlp, Mesh(a=2, b=2), adam, layouts={"dense.*": tnt.Split(columns="a")}
    ),
}  # fmt: skip
#: Others run with the long tests: each model that is traced takes seconds.
USUAL = ("unet, small",)


def fitted(name: str, distributed: bool) -> Outcome:
    case = CASES[name]
    keras.config.set_floatx(case.dtype)
    keras.config.set_dtype_policy(case.dtype)
    try:

        def compiled() -> keras.Model:
            model = case.make()
            model.compile(case.optimizer(), case.loss, metrics=["accuracy"] if labels else ["mae"])
            return model

        labels = case.loss != "mse"
        x, y = networks.batch(case.make(), case.samples, labels)
        fit = {"x": x, "y": y, "batch_size": case.batch_size, "epochs": 2}
        more = {"mesh": case.mesh, "layouts": case.layouts} if distributed else {}
        return train(compiled, fit, distributed, {"x": x, "y": y, "batch_size": 4}, more=more)
    finally:
        keras.config.set_floatx("float32")
        keras.config.set_dtype_policy("float32")


@pytest.mark.parametrize(
    "name",
    [n if n in USUAL else pytest.param(n, marks=pytest.mark.thorough) for n in CASES],
)
def test_network(ranks, name):
    case = CASES[name]
    near = {"rtol": case.rtol, "atol": case.rtol / 10}
    ours, theirs = compare(ranks, case.mesh.size, fitted, name, **near)
    close(ours.optimizer, theirs.optimizer, **near)


COLUMNS = {"dense.*": tnt.Split(columns="model")}
MIXED = {
    "mlp": (networks.mlp, Mesh(model=2), COLUMNS),
    # Without replicas: they scale gradients of their part of a batch, which overflow sooner.
    "vgg": (networks.vgg, Mesh(height=2), in_space("height")),
}


def stopped(folder: str, distributed: bool) -> Outcome:
    """Of a fit that ends early, whose best model is kept, as the last one is."""
    callbacks = [
        keras.callbacks.EarlyStopping("val_loss", patience=1, restore_best_weights=True),
        keras.callbacks.ModelCheckpoint(f"{folder}/{distributed}.keras", save_best_only=True),
    ]
    x, y = networks.batch(networks.mlp(), 20, labels=False)

    def compiled() -> keras.Model:
        model = networks.mlp()
        model.compile(keras.optimizers.Adam(0.1), "mse")
        return model

    fit = {"x": x[:14], "y": y[:14], "validation_data": (x[14:], y[14:])}
    fit |= {"batch_size": 5, "epochs": 12, "callbacks": callbacks}
    more = {"mesh": Mesh(model=2), "layouts": COLUMNS} if distributed else {}
    return train(compiled, fit, distributed, more=more)


def test_callbacks_see_whole_models_and_files_hold_them(ranks, tmp_path):
    ours, theirs = compare(ranks, 2, stopped, str(tmp_path), rtol=1e-4, atol=1e-5)
    assert 1 < len(theirs.history["loss"]) < 12
    together, alone = (keras.models.load_model(tmp_path / f"{how}.keras") for how in (True, False))
    close(together.get_weights(), alone.get_weights(), 1e-4, 1e-5)
    close(together.get_weights(), ours.weights, 0, 0)  # the best, restored
    close(together.optimizer.iterations, alone.optimizer.iterations)
    assert {path.name for path in Path(tmp_path).iterdir()} == {"True.keras", "False.keras"}


def mixed(name: str, distributed: bool) -> Outcome:
    """In 16 bits, with a loss scale that grows every three steps, and begins too high."""
    make, mesh, layouts = MIXED[name]
    keras.config.set_dtype_policy("mixed_float16")
    try:
        x, y = networks.batch(make(), 12, labels=False)

        def compiled() -> keras.Model:
            model = make()
            scaled = keras.optimizers.LossScaleOptimizer(sgd(), 2.0**20, dynamic_growth_steps=3)
            model.compile(scaled, "mse")
            return model

        fit = {"x": x, "y": y, "batch_size": 4, "epochs": 4}
        more = {"mesh": mesh, "layouts": layouts} if distributed else {}
        return train(compiled, fit, distributed, more=more)
    finally:
        keras.config.set_dtype_policy("float32")


@pytest.mark.thorough
@pytest.mark.parametrize("name", MIXED)
def test_16_bits_and_a_scaled_loss(ranks, name):
    ours, theirs = compare(ranks, MIXED[name][1].size, mixed, name, rtol=2e-2, atol=4e-3)
    scales = [[v for v in one.optimizer if v.shape == ()] for one in (ours, theirs)]
    for a, b in zip(*scales, strict=True):
        np.testing.assert_array_equal(a, b)
