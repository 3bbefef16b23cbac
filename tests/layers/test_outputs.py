"""Losses and metrics of outputs in blocks are those of one process, and gather no output."""

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import pytest

import tnt_notebook as tnt
from tests.parallel.outcome import Outcome, compare, train
from tests.pipeline.models import numbers
from tnt_notebook.parallel.layers.outputs import Outputs

L = keras.layers
SHAPE, SAMPLES, CLASSES = (7, 6, 2), 11, 3
rng = np.random.default_rng(3)
CLASS = rng.integers(0, CLASSES, (SAMPLES, *SHAPE[:2]))
MASK = (CLASS > 0).astype("float64")
WEIGHTS = rng.uniform(0.2, 2, (SAMPLES, *SHAPE[:2]))


def conv(filters: int, name: str, activation: Any = None) -> keras.Layer:
    return L.Conv2D(filters, 3, padding="same", activation=activation, name=name)


def segmenting(filters: int, activation: Any = None) -> Callable[[], keras.Model]:
    def make() -> keras.Model:
        x = keras.Input(SHAPE)
        return keras.Model(x, conv(filters, "conv_2", activation)(conv(4, "conv_1", "relu")(x)))

    return make


def two_heads() -> keras.Model:
    x = keras.Input(SHAPE)
    y = conv(4, "conv_1", "relu")(x)
    return keras.Model(x, [conv(CLASSES, "conv_2")(y), conv(1, "conv_3", "sigmoid")(y)])


def of_both() -> dict[str, Any]:
    iou = keras.metrics.MeanIoU(CLASSES, sparse_y_pred=False, name="iou")
    right, auc = keras.metrics.BinaryAccuracy(name="right"), keras.metrics.AUC(5, name="auc")
    losses = [keras.losses.SparseCategoricalCrossentropy(True, ignore_class=2), "bce"]
    return {
        "loss": losses, "loss_weights": [1.0, 0.5], "metrics": [["accuracy", iou], ["mae"]],
        "weighted_metrics": [[], [right, auc]],
    }  # fmt: skip


def weighted() -> dict[str, Any]:
    metrics = [keras.metrics.BinaryAccuracy(name="right"), keras.metrics.BinaryIoU(name="iou")]
    rmse = keras.metrics.RootMeanSquaredError(name="rmse")
    return {"loss": "binary_crossentropy", "metrics": [rmse], "weighted_metrics": metrics}


def of_some() -> dict[str, Any]:
    loss = keras.losses.Huber(reduction="sum")
    return {"loss": loss, "loss_weights": 0.01, "metrics": ["hinge", "mae"]}


def dice() -> dict[str, Any]:
    return {"loss": keras.losses.Dice(), "metrics": [keras.metrics.Precision(name="precision")]}


def words() -> keras.Model:
    x = keras.Input((4, 3))
    return keras.Model(x, L.Dense(CLASSES, name="conv_1", activation="softmax")(x))


def of_words() -> dict[str, Any]:
    return {
        "loss": "sparse_categorical_crossentropy", "metrics": ["accuracy"],
        "weighted_metrics": [keras.metrics.SparseCategoricalAccuracy(name="weighted")],
    }  # fmt: skip


def of_logits() -> dict[str, Any]:
    loss = keras.losses.CategoricalCrossentropy(True, label_smoothing=0.1, reduction="sum")
    return {"loss": loss, "loss_weights": 0.01, "metrics": ["accuracy"]}


HEIGHT, WIDTH = tnt.Split(height="height"), tnt.Split(height="height", width="width")
OF_BOTH = tnt.Split(height="height", filters="model")
#: The mesh, the layouts, the model, its labels and what else is fed, and what compile() is told.
CASES: dict[str, tuple[Any, ...]] = {
    "of two outputs": (
        tnt.Mesh(height=2), HEIGHT, two_heads, [CLASS, MASK[..., None]],
        {"sample_weight": [WEIGHTS, WEIGHTS]}, of_both,
    ),
    "weighted, on three": (
        tnt.Mesh(height=3), HEIGHT, segmenting(1, "sigmoid"), MASK[..., None],
        {"sample_weight": WEIGHTS}, weighted,
    ),
    "over two axes": (
        tnt.Mesh(height=2, width=2), WIDTH, segmenting(1, "sigmoid"), MASK[..., None],
        {"sample_weight": WEIGHTS[..., :1, :1]}, of_some,
    ),
    "of divided classes": (
        tnt.Mesh(model=2), tnt.Split(columns="model"), words, CLASS[:, :4, 0],
        {"sample_weight": WEIGHTS[:, :4, 0]}, of_words,
    ),
    "of divided classes, in space": (
        tnt.Mesh(height=2, model=2), {"conv_1": HEIGHT, "conv_2": OF_BOTH}, segmenting(CLASSES),
        np.eye(CLASSES)[CLASS], {}, of_logits,
    ),
    "of the whole batch": (
        tnt.Mesh(data=2, height=2), HEIGHT, segmenting(1, "sigmoid"), MASK, {}, dice,
    ),
}  # fmt: skip
CASES["of two outputs, with replicas"] = (tnt.Mesh(data=2, height=2), *CASES["of two outputs"][1:])
#: What all tests run.
SHORT = ("of two outputs", "of divided classes")


def fitted(name: str, distributed: bool) -> Outcome:
    mesh, split, make, y, more, compiled = CASES[name]
    own, seen = Outputs.add, list[Outputs]()

    def added(outputs: Outputs, output: Any) -> Any:
        seen.append(outputs)
        return own(outputs, output)

    keras.config.set_floatx("float64")
    keras.config.set_dtype_policy("float64")
    Outputs.add = added
    try:

        def made() -> keras.Model:
            model = make()
            model.compile(keras.optimizers.SGD(0.1, momentum=0.9), **compiled())
            return model

        fed = {"x": numbers(SAMPLES, *make().input_shape[1:]), "y": y, **more}
        layouts = split if isinstance(split, dict) else {"conv.*": split}
        given = {"mesh": mesh, "layouts": layouts} if distributed else {}
        fit = {**fed, "batch_size": 6, "epochs": 2, "validation_data": tuple(fed.values())}
        outcome = train(made, fit, distributed, more=given)
        assert bool(seen) == distributed
        assert not any(outputs.told for outputs in seen)
        return outcome
    finally:
        Outputs.add = own
        keras.config.set_floatx("float32")
        keras.config.set_dtype_policy("float32")


@pytest.mark.core
@pytest.mark.parametrize(
    "name",
    [pytest.param(n, marks=pytest.mark.thorough) if n not in SHORT else n for n in CASES],
)
def test_outputs_in_blocks(ranks, name):
    compare(ranks, CASES[name][0].size, fitted, name, rtol=1e-7, atol=1e-9)
