"""Any number of ranks gives the result of one process."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.parallel.models import MODELS, SAMPLES, classification, mlp, rng
from tests.parallel.outcome import Outcome, compare, train
from tests.support.cases import latin
from tnt_notebook import ops


def run_model(name: str, shares: tuple[int, ...], distributed: bool) -> Outcome:
    make, data = MODELS[name]
    x, y = data()
    fit = {"x": x, "y": y, "batch_size": 16, "epochs": 2}
    evaluate = None
    if name != "gan":
        fit["validation_split"] = 0.3
        evaluate = {"x": x, "y": y, "batch_size": 12}
    return train(make, fit, distributed, evaluate, more={"shares": shares or None})


@pytest.mark.parametrize(
    ("name", "n", "shares"),
    [(name, *how) for name, how in latin(MODELS, ((2, ()), (3, (3, 1, 2)), (2, (1, 3)), (4, ())))],
)
def test_models(ranks, name, n, shares):
    compare(ranks, n, run_model, name, shares, True, alone=(name, (), False))


@pytest.mark.core
@pytest.mark.parametrize(
    "name", ["mlp", "several inputs and outputs", "embedding with mask", "gan"]
)
def test_models_on_one_rank(ranks, name):
    compare(ranks, 1, run_model, name, ())


OPTIMIZERS = {
    "SGD": {"learning_rate": 0.1, "momentum": 0.9, "nesterov": True},
    "RMSprop": {"centered": True},
    "Adam": {"amsgrad": True},
    **{name: {} for name in ("AdamW", "Adadelta", "Adagrad", "Adamax", "Adafactor", "Nadam")},
    **{name: {} for name in ("Ftrl", "Lion", "Lamb", "Muon")},
}
CLIPPING = {
    "clipnorm": {"clipnorm": 0.05},
    "global clipnorm": {"global_clipnorm": 0.05},
    "clipvalue": {"clipvalue": 0.01},
    "accumulation": {"gradient_accumulation_steps": 2},
    "moving average": {"use_ema": True, "ema_overwrite_frequency": 3},
    "schedule": {"learning_rate": keras.optimizers.schedules.CosineDecay(0.05, 10)},
}


def of_mlp(distributed: bool, make: Callable[[], keras.Model] = mlp) -> Outcome:
    x, y = classification()
    return train(make, {"x": x, "y": y, "batch_size": 16, "epochs": 2}, distributed)


def run_optimizer(name: str, options: dict, distributed: bool) -> Outcome:
    # In float64: Lion and Adam divide small numbers by small numbers.
    keras.config.set_floatx("float64")
    keras.config.set_dtype_policy("float64")
    try:
        make = getattr(keras.optimizers, name)
        return of_mlp(distributed, lambda: mlp(make(**options)))
    finally:
        keras.config.set_floatx("float32")
        keras.config.set_dtype_policy("float32")


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_optimizers(ranks, name):
    compare(ranks, 2, run_optimizer, name, OPTIMIZERS[name], rtol=1e-6, atol=1e-9)


@pytest.mark.core
@pytest.mark.parametrize("name", CLIPPING)
def test_what_optimizers_do_to_gradients(ranks, name):
    compare(ranks, 3, run_optimizer, "Adam", CLIPPING[name], rtol=1e-6, atol=1e-9)


def run_loss_scaling(distributed: bool) -> Outcome:
    def scaled() -> keras.Model:
        sgd = keras.optimizers.SGD(0.1)
        return mlp(keras.optimizers.LossScaleOptimizer(sgd, 2.0**10, dynamic_growth_steps=2))

    return of_mlp(distributed, scaled)


@pytest.mark.core
def test_loss_scaling(ranks):
    compare(ranks, 3, run_loss_scaling)


def run_several_steps_at_once(distributed: bool) -> Outcome:
    x, y = classification()

    fit = {"x": x, "y": y, "batch_size": 10, "epochs": 2}
    make = partial(mlp, steps_per_execution=3)
    return train(make, fit, distributed, {"x": x, "y": y, "batch_size": 10})


@pytest.mark.core
def test_several_steps_per_execution(ranks):
    compare(ranks, 3, run_several_steps_at_once)


def run_bfloat16(distributed: bool) -> Outcome:
    keras.config.set_dtype_policy("mixed_bfloat16")
    try:
        return of_mlp(distributed)
    finally:
        keras.config.set_dtype_policy("float32")


def test_mixed_bfloat16(ranks):
    # The forward pass rounds to 8 bits; slices of a batch round differently.
    compare(ranks, 3, run_bfloat16, rtol=2e-2, atol=2e-2)


class Numbers(keras.utils.PyDataset):
    def __init__(self) -> None:
        super().__init__()
        self.x, self.y = classification()
        self.order = np.arange(SAMPLES)

    def __len__(self) -> int:
        return 4

    def __getitem__(self, i: int):
        chosen = self.order[i * 16 : (i + 1) * 16]
        return self.x[chosen], self.y[chosen]

    def on_epoch_end(self) -> None:
        self.order = self.order[::-1]


def generate():
    x, y = classification()
    while True:
        for i in range(0, SAMPLES, 16):
            yield x[i : i + 16], y[i : i + 16]


def inputs() -> dict[str, dict[str, Any]]:
    """What fit takes."""
    x, y = classification()
    weights = rng(9).uniform(size=SAMPLES).astype("float32")
    shuffled = tf.data.Dataset.from_tensor_slices((x, y)).shuffle(SAMPLES, seed=1)
    batched, mapped = shuffled.batch(16), shuffled.map(lambda x, y: (2 * x, y)).batch(16)
    return {
        "arrays shuffled": {"x": x, "y": y, "batch_size": 16, "shuffle": True},
        "arrays in order": {"x": x, "y": y, "batch_size": 16, "shuffle": False},
        "tensors": {"x": tf.constant(x), "y": tf.constant(y), "batch_size": 10},
        "fewer samples than ranks": {"x": x[:3], "y": y[:3], "batch_size": 16},
        "sample_weight": {"x": x, "y": y, "batch_size": 16, "sample_weight": weights},
        "class_weight": {"x": x, "y": y, "batch_size": 16, "class_weight": {0: 1, 1: 2, 2: 5}},
        "tf.data": {"x": batched},
        "tf.data infinite": {"x": mapped.repeat(), "steps_per_epoch": 5},
        "tf.data of unknown length": {"x": batched.filter(lambda x, y: True)},
        "tf.data with class_weight": {"x": mapped, "class_weight": {0: 1, 1: 2, 2: 5}},
        "tf.data with weights": {
            "x": tf.data.Dataset.from_tensor_slices((x, y, weights)).batch(16)
        },
        "PyDataset": {"x": Numbers(), "shuffle": False},
        "PyDataset shuffled": {"x": Numbers(), "shuffle": True},
        "generator": {"x": generate(), "steps_per_epoch": 4},
        "validation arrays": {
            "x": x, "y": y, "batch_size": 16, "validation_data": (x[:21], y[:21], weights[:21]),
            "validation_batch_size": 5, "validation_freq": 2,
        },
        "validation tf.data": {
            "x": x, "y": y, "validation_data": mapped, "validation_steps": 2,
        },
        "validation PyDataset": {"x": x, "y": y, "validation_data": Numbers()},
    }  # fmt: skip


INPUTS = tuple(inputs())


def run_input(kind: str, distributed: bool) -> Outcome:
    x, y = classification()
    weights = rng(9).uniform(size=SAMPLES).astype("float32")
    fit = {**inputs()[kind], "epochs": 3}
    # What is evaluated then does not depend on what it was trained with: once is enough.
    evaluate = {"x": x, "y": y, "sample_weight": weights} if kind == "sample_weight" else None
    return train(mlp, fit, distributed, evaluate)


@pytest.mark.filterwarnings("ignore:.*shuffle=True")
@pytest.mark.parametrize(("kind", "n"), latin(INPUTS, (2, 3)))
def test_input(ranks, kind, n):
    compare(ranks, n, run_input, kind)


class TakesOneTuples(keras.Sequential):
    def train_step(self, data: Any) -> Any:
        (x,) = data
        with tf.GradientTape() as tape:
            loss = keras.ops.mean(keras.ops.square(self(x) - 1))
        weights = self.trainable_variables
        self.optimizer.apply(tape.gradient(loss, weights), weights)
        return {"loss": loss}


def run_one_tuples(distributed: bool) -> Outcome:
    def make() -> keras.Model:
        model = TakesOneTuples([keras.Input((8,)), keras.layers.Dense(1)])
        model.compile("sgd")
        return model

    data = tf.data.Dataset.from_tensor_slices((classification()[0],)).batch(16)
    return train(make, {"x": data, "epochs": 2}, distributed)


def test_tuples_of_one_stay_tuples(ranks):
    compare(ranks, 3, run_one_tuples)


def root_of_mean(y: Any, outputs: Any) -> Any:
    return keras.ops.sqrt(keras.ops.mean(keras.ops.square(keras.ops.cast(y, "float32") - outputs)))


def sum_of_squares(y: Any, outputs: Any) -> Any:
    return keras.ops.sum(keras.ops.square(keras.ops.cast(y, "float32") - outputs))


OF_WHOLE_BATCHES = {
    "Dice": keras.losses.Dice(),
    "Tversky": keras.losses.Tversky(alpha=0.3),
    "Circle": keras.losses.Circle(),
    "root of a mean": root_of_mean,
    "sum": sum_of_squares,
}


def run_loss(name: str, distributed: bool) -> Outcome:
    circles = name == "Circle"
    normed = [keras.layers.UnitNormalization()] if circles else []
    x, y = classification()
    y = y if circles else np.eye(3, dtype="float32")[y]

    def make() -> keras.Model:
        head = [] if circles else [keras.layers.Dense(3, "softmax")]
        model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(4), *normed, *head])
        model.compile(keras.optimizers.SGD(0.01), OF_WHOLE_BATCHES[name])
        return model

    # The last batch has fewer samples than there are ranks.
    fit = {"x": x[:52], "y": y[:52], "batch_size": 10, "epochs": 2, "shuffle": False}
    return train(make, fit, distributed, {"x": x, "y": y, "batch_size": 12})


@pytest.mark.parametrize(("name", "n"), latin(OF_WHOLE_BATCHES, (3, 2)))
def test_losses_of_the_whole_batch(ranks, name, n):
    compare(ranks, n, run_loss, name)


class Steps(keras.Sequential):
    """Looks at the batch as a whole, in its gradients or in its loss."""

    kind: str

    def train_step(self, data: Any) -> Any:
        x, _ = data
        with tf.GradientTape() as tape:
            loss = getattr(self, self.kind)(x)
        weights = self.trainable_variables
        gradients = tape.gradient(loss, weights)
        if self.kind == "clipped":
            gradients, _ = tf.clip_by_global_norm(gradients, 0.05)
        self.optimizer.apply(gradients, weights)
        return {"loss": loss, "norm": tf.linalg.global_norm(gradients)}

    def clipped(self, x: Any) -> Any:
        return tf.reduce_mean(tf.square(self(x) - 1))

    def contrasted(self, x: Any) -> Any:
        own, all_ = self(x), ops.allgather(self(x))
        mine = tf.range(tf.shape(own)[0]) + ops.first_sample()
        return tf.reduce_mean(
            tf.nn.sparse_softmax_cross_entropy_with_logits(mine, own @ tf.transpose(all_))
        )

    def spread(self, x: Any) -> Any:
        outputs = self(x)
        mean = ops.reduce_mean(outputs)
        variance = ops.reduce_mean(tf.square(outputs - mean))
        return tf.reduce_mean(tf.sqrt(variance)) + 0.01 * tf.tanh(
            ops.allreduce(tf.reduce_sum(outputs[:0]))
        )


def run_step(kind: str, distributed: bool) -> Outcome:
    def make() -> keras.Model:
        model = Steps([keras.Input((8,)), keras.layers.Dense(4, "tanh")])
        model.kind = kind
        model.compile(keras.optimizers.SGD(0.1))
        return model

    x, y = classification()
    fit = {"x": x[:52], "y": y[:52], "batch_size": 10, "epochs": 2, "shuffle": False}
    return train(make, fit, distributed)


@pytest.mark.parametrize("kind", ["clipped", "contrasted", "spread"])
def test_steps_that_look_at_the_whole_batch(ranks, kind):
    compare(ranks, 3, run_step, kind)
