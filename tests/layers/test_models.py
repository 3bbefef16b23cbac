"""Whole networks on a mesh learn what they learn in one process: weights, history, predictions, and
what optimizers keep, in float64."""

import functools
from typing import Any, NamedTuple

import keras
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
    "multi_head.*": tnt.Split(heads="model"), "dense.*[02468]": tnt.Split(rows="model"),
    "dense.*[13579]": tnt.Split(columns="model"),
}  # fmt: skip

CASES: dict[str, Case] = {
    # Adam divides small gradients by their own size, and so their rounding, too.
    "unet, depth": Case(networks.unet, Mesh(depth=2), adam, CROSS_ENTROPY, DEPTH, rtol=1e-6),
    "unet, depth 3": Case(networks.unet, Mesh(depth=3), sgd, CROSS_ENTROPY),
    "unet, replicas": Case(networks.unet, Mesh(data=2, depth=2), rmsprop, CROSS_ENTROPY, DEPTH),
    "unet, two axes": Case(
        networks.unet, Mesh(depth=2, height=2), sgd, CROSS_ENTROPY, in_space("depth", "height"),
    ),
    "unet, any axis": Case(networks.unet, Mesh(model=2), adam, CROSS_ENTROPY),
    "unet, pooled": Case(
        networks.pooled_unet, Mesh(depth=2, width=2), sgd, CROSS_ENTROPY, samples=6,
        dtype="float32", rtol=1e-3,
    ),
}  # fmt: skip
USUAL = ("unet, depth",)


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
    near = {"rtol": case.rtol, "atol": case.rtol / 100}
    ours, theirs = compare(ranks, case.mesh.size, fitted, name, **near)
    close(ours.optimizer, theirs.optimizer, **near)
