"""Ranks that share a GPU train as one process with Keras alone does on the same GPU."""

from collections.abc import Callable
from typing import Any

import keras
import pytest
import tensorflow as tf

import tnt_notebook as tnt
from tests.parallel import models
from tests.parallel.models import images
from tests.parallel.outcome import Outcome, assert_identical, assert_same, train

#: By dtype policy how far results may be apart: ranks sum in another order than one process, and a
#: GPU may have another algorithm for a slice of a batch.
TOLERANCES = {
    "float64": {"rtol": 1e-6, "atol": 1e-9},
    "float32": {"rtol": 1e-3, "atol": 1e-4},
    "mixed_float16": {"rtol": 2e-2, "atol": 2e-2},
}


def cnn() -> keras.Model:
    """With a metric that takes any dtype and does not jump, unlike that of the other tests'."""
    model, loss = models.cnn(), "sparse_categorical_crossentropy"
    model.compile(keras.optimizers.SGD(0.05, momentum=0.9), loss, metrics=[loss])
    return model


NAMES = ("mlp", "embedding with mask", "synchronised batch norm", "gan")
MODELS = {**{name: models.MODELS[name] for name in NAMES}, "cnn": (cnn, images)}

_plain: dict[tuple, Outcome] = {}


def compare(ranks: Any, n: int, policy: str, function: Callable, *args: Any) -> None:
    """Runs ``function(*args, policy, distributed)`` on n ranks, and with Keras alone on one."""
    key = (function.__name__, policy, *args)
    if key not in _plain:
        (_plain[key],) = ranks.run(1, function, *args, policy, False)
    outcomes = ranks.run(n, function, *args, policy, True)
    assert_same(outcomes[0], _plain[key], **TOLERANCES[policy])
    assert_identical(outcomes)


def in_policy(policy: str, run: Callable[[], Outcome]) -> Outcome:
    """Runs it with this dtype policy."""
    keras.config.set_floatx("float64" if policy == "float64" else "float32")
    keras.config.set_dtype_policy(policy)
    try:
        return run()
    finally:
        keras.config.set_floatx("float32")
        keras.config.set_dtype_policy("float32")


def data_parallel(name: str, policy: str, distributed: bool) -> Outcome:
    make, data = MODELS[name]
    x, y = data()
    made: list[keras.Model] = []

    def kept() -> keras.Model:
        made.append(make())
        return made[0]

    fit = {"x": x, "y": y, "batch_size": 16, "epochs": 2}
    evaluate = None
    if name != "gan":
        fit["validation_split"] = 0.3
        evaluate = {"x": x, "y": y, "batch_size": 12}
    outcome = in_policy(policy, lambda: train(kept, fit, distributed, evaluate))
    assert devices(made[0]) == {"GPU"}
    return outcome


def devices(model: keras.Model) -> set[str | None]:
    """The kinds of devices that have the model's weights."""
    return {
        tf.DeviceSpec.from_string(variable.value.device).device_type
        for variable in model.trainable_variables
    }


@pytest.mark.parametrize("n", (1, 2, 4))
@pytest.mark.parametrize("name", MODELS)
def test_any_number_of_ranks_gives_the_result_of_one_process(ranks, name, n):
    # Of float64, TensorFlow has cuDNN fill steps that a mask hides with half a number of garbage.
    compare(ranks, n, "float32" if "mask" in name else "float64", data_parallel, name)


@pytest.mark.parametrize("policy", ("float32", "mixed_float16"))
def test_in_the_precisions_that_gpus_train_in(ranks, policy):
    compare(ranks, 2, policy, data_parallel, "cnn")


def in_stages(name: str, schedule: str, policy: str, distributed: bool) -> Outcome:
    make, data = MODELS[name]
    x, y = data()

    def pipeline(model: keras.Model) -> tnt.Pipeline:
        middle = [layer.name for layer in model.layers if layer.weights][1]
        return tnt.Pipeline(2, 4, schedule, cut_at=[middle])

    fit = {"x": x, "y": y, "batch_size": 16, "epochs": 2, "validation_split": 0.3}
    evaluate = {"x": x, "y": y, "batch_size": 12}
    cut = pipeline if distributed else None
    outcome = in_policy(policy, lambda: train(make, fit, distributed, evaluate, cut))
    assert tf.config.list_logical_devices("GPU")
    return outcome


@pytest.mark.parametrize("name, schedule", [("mlp", "zb-h1"), ("cnn", "1f1b")])
def test_a_pipeline_of_two_gives_the_result_of_one_process(ranks, name, schedule):
    compare(ranks, 2, "float64", in_stages, name, schedule)
