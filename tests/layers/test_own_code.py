"""Steps that look at weights and gradients which a mesh cuts, or of which its ranks have parts:
what they compute is what one process computes."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import tnt_notebook as tnt
from tests.parallel.outcome import Outcome, close, compare, train
from tests.pipeline.models import numbers
from tests.support.cases import THOROUGH

L, ops = keras.layers, keras.ops
Weights = Sequence[keras.Variable]


def orthogonal(weights: Weights) -> Any:
    kernel = tf.reshape(weights[0], (-1, weights[0].shape[-1]))
    alike = tf.matmul(kernel, kernel, transpose_a=True)
    return tf.reduce_sum(tf.square(alike - tf.eye(weights[0].shape[-1], dtype=alike.dtype)))


def by_their_sizes(weights: Weights) -> Any:
    return tf.add_n([ops.sum(ops.abs(w)) / float(np.prod(w.shape)) for w in weights])


#: What a step adds to its loss.
TERMS: list[Callable[[Weights], Any]] = [
    lambda weights: tf.add_n([tf.nn.l2_loss(w) for w in weights]),
    lambda weights: tf.add_n([tf.reduce_mean(tf.square(w)) for w in weights]),
    lambda weights: tf.add_n([ops.sum(w.value * w.value + w[0]) for w in weights]),
    lambda weights: tf.sqrt(tf.reduce_max(tf.abs(weights[0])) + tf.norm(weights[2])),
    by_their_sizes,
    orthogonal,
]


def adaptive(gradients: list[Any], weights: Weights) -> list[Any]:
    """Brock et al., "High-Performance Large-Scale Image Recognition Without Normalization"."""
    most = [0.05 * tf.maximum(tf.norm(w), 1e-3) for w in weights]
    return [g * ops.minimum(1.0, m / tf.norm(g)) for g, m in zip(gradients, most, strict=True)]


def halved_if_large(gradients: list[Any], weights: Weights) -> list[Any]:
    return tf.cond(
        tf.linalg.global_norm(gradients) > 0.3,
        lambda: [0.5 * g for g in gradients],
        lambda: [tf.identity(g) for g in gradients],
    )


#: What it does to gradients.
CHANGES: list[Callable[[list[Any], Weights], list[Any]]] = [
    lambda gradients, weights: tf.clip_by_global_norm(gradients, 0.05)[0],
    lambda gradients, weights: [tf.clip_by_norm(g, 0.02) for g in gradients],
    lambda gradients, weights: [g - tf.reduce_mean(g, 0, keepdims=True) for g in gradients],
    lambda gradients, weights: [g / (1.0 + ops.max(ops.abs(g))) for g in gradients],
    lambda gradients, weights: list(gradients),
    adaptive,
    halved_if_large,
]


def sharpness_aware(step: Stepping, x: Any, y: Any, gradients: list[Any]) -> list[Any]:
    """Foret et al., "Sharpness-Aware Minimization for Efficiently Improving Generalization"."""
    norm = tf.linalg.global_norm(gradients)
    moves = [0.05 * g / norm for g in gradients]
    for weight, move in zip(step.trainable_variables, moves, strict=True):
        weight.assign_add(move)
    with tf.GradientTape() as tape:
        loss = step.compute_loss(x, y, step(x, training=True))
    found = tape.gradient(loss, step.trainable_variables)
    for weight, move in zip(step.trainable_variables, moves, strict=True):
        weight.assign_sub(move)
    return found


class Stepping(keras.Model):
    """Whose step a seed chooses."""

    def __init__(self, seed: int, **given: Any) -> None:
        super().__init__(**given)
        self.seed = seed
        self.averages = [
            self.add_weight(
                shape=tuple(w.shape), initializer="zeros", trainable=False, name=f"a{i}"
            )
            for i, w in enumerate(self.trainable_variables)
        ]

    def train_step(self, batch: Any) -> dict[str, Any]:
        choose, (x, y) = random.Random(self.seed), batch
        weights = self.trainable_variables
        with tf.GradientTape() as tape:
            loss = self._loss(choose, x, y)
            for term in choose.sample(TERMS, 2):
                loss += 0.05 * term(weights)
        gradients = tape.gradient(loss, weights)
        if choose.random() < 0.4:
            gradients = sharpness_aware(self, x, y, gradients)
        for change in choose.sample(CHANGES, 2):
            gradients = change(gradients, weights)
        logs = {"loss": loss, "norm": tf.linalg.global_norm(gradients)}
        self.optimizer.apply(gradients, weights)
        if choose.random() < 0.5:
            for weight in weights:
                weight.assign(tf.clip_by_value(weight - 0.01 * weight, -0.4, 0.4))
        for average, weight in zip(self.averages, weights, strict=True):
            average.assign(0.9 * average + 0.1 * weight)
        return logs | {
            "moved": tf.add_n([tf.norm(w - a) for w, a in zip(weights, self.averages, strict=True)])
        }

    def _loss(self, choose: random.Random, x: Any, y: Any) -> Any:
        kind = choose.choice(["call", "layers", "penalty"])
        if kind == "call":
            return self.compute_loss(x, y, self(x, training=True))
        if kind == "layers":
            made = x
            for layer in self.layers[1:]:
                made = layer(made)
            return self.compute_loss(x, y, made)
        with tf.GradientTape() as tape:
            tape.watch(x)
            made = self(x, training=True)
        slope = tape.gradient(made, x)
        return self.compute_loss(x, y, made) + 0.1 * tf.reduce_mean(tf.square(slope))

    def test_step(self, batch: Any) -> dict[str, Any]:
        norm = tf.add_n([tf.norm(w) for w in self.trainable_variables])
        return super().test_step(batch) | {"norm": norm}


def dense(seed: int) -> keras.Model:
    x = keras.Input((8,))
    return Stepping(seed, inputs=x, outputs=L.Dense(6, name="b")(L.Dense(9, "tanh", name="a")(x)))


def convolutional(seed: int) -> keras.Model:
    x = keras.Input((6, 5, 3))
    y = L.Conv2D(4, 3, padding="same", activation="tanh", name="a")(x)
    return Stepping(seed, inputs=x, outputs=L.Conv2D(2, 3, padding="same", name="b")(y))


COLUMNS, HEIGHT = tnt.Split(columns="model"), tnt.Split(height="height")
MESHES: dict[str, tuple[Any, ...]] = {
    "weights": (dense, tnt.Mesh(model=2), {"a": COLUMNS, "b": tnt.Split(rows="model")}),
    "weights, unevenly": (dense, tnt.Mesh(model=3), {"a": COLUMNS, "b": COLUMNS}),
    "space": (convolutional, tnt.Mesh(height=2), {"a|b": HEIGHT}),
}
MESHES["weights, with replicas"] = (dense, tnt.Mesh(data=2, model=2), MESHES["weights"][2])
MESHES["space, with replicas"] = (convolutional, tnt.Mesh(data=2, height=2), {"a|b": HEIGHT})
SEEDS = 12 if THOROUGH else 1


def trained(
    make: Callable[[], keras.Model], optimizer: Callable[[], Any], given: Sequence[Any], on: bool
) -> Outcome:
    """In float64, with the mesh and the layouts that are given, or alone."""
    keras.config.set_floatx("float64")
    keras.config.set_dtype_policy("float64")
    try:

        def made() -> keras.Model:
            model = make()
            model.compile(optimizer(), "mse")
            return model

        model = make()
        x, y = (numbers(11, *shape[1:]) for shape in (model.input_shape, model.output_shape))
        fit = {"x": x, "y": y, "batch_size": 6, "epochs": 2, "validation_data": (x, y)}
        mesh, layouts = given
        return train(made, fit, on, more={"mesh": mesh, "layouts": layouts})
    finally:
        keras.config.set_floatx("float32")
        keras.config.set_dtype_policy("float32")


def stepped(name: str, seed: int, distributed: bool) -> Outcome:
    make, *given = MESHES[name]

    def optimizer() -> keras.Optimizer:
        return keras.optimizers.SGD(0.1, momentum=0.9)

    return trained(lambda: make(seed), optimizer, given, distributed)


@pytest.mark.parametrize("seed", range(SEEDS))
@pytest.mark.parametrize("name", MESHES)
def test_steps_see_whole_weights_and_gradients(ranks, name, seed):
    compare(ranks, MESHES[name][1].size, stepped, name, seed, rtol=1e-8, atol=1e-10)


class Scaling(keras.optimizers.SGD):
    """Steps as long as weights are (You et al., "Large Batch Training of Convolutional
    Networks")."""

    def update_step(self, gradient: Any, variable: Any, learning_rate: Any) -> None:
        by = tf.norm(variable) / (tf.norm(tf.convert_to_tensor(gradient)) + 1e-6)
        super().update_step(tf.convert_to_tensor(gradient) * by, variable, learning_rate)


OPTIMIZERS: dict[str, Callable[[], keras.Optimizer]] = {
    "Lamb": lambda: keras.optimizers.Lamb(0.01, global_clipnorm=0.1, weight_decay=0.01),
    "Adafactor": lambda: keras.optimizers.Adafactor(0.05, use_ema=True),
    "of one's own": lambda: Scaling(0.05, momentum=0.9, gradient_accumulation_steps=2),
}


def words() -> keras.Model:
    x = keras.Input((4,))
    y = L.Flatten()(L.Embedding(9, 6, name="a")(ops.cast(ops.abs(x) * 4, "int32") % 9))
    return keras.Model(x, L.Dense(6, name="b")(y))


def with_optimizer(name: str, distributed: bool) -> Outcome:
    return trained(words, OPTIMIZERS[name], MESHES["weights"][1:], distributed)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_optimizers_that_look_at_whole_weights(ranks, name):
    ours, theirs = compare(ranks, 2, with_optimizer, name, rtol=1e-8, atol=1e-10)
    close(ours.optimizer, theirs.optimizer, 1e-8, 1e-10)


def of_a_weight(distributed: bool) -> Outcome:
    """A loss that looks at a weight, and has a number for each sample, of outputs in blocks."""

    def made() -> keras.Model:
        x = keras.Input((6, 5, 3))
        y = L.Conv2D(4, 3, padding="same", name="a")(x)
        model = keras.Model(x, L.Conv2D(2, 3, padding="same", name="b")(y))
        kernel = model.layers[1].kernel

        class OfAWeight(keras.losses.Loss):
            def call(self, y_true: Any, y_pred: Any) -> Any:
                off = ops.mean(ops.square(y_true - y_pred), axis=(1, 2, 3))
                return off * (1 + ops.sum(ops.square(kernel)))

        model.compile(keras.optimizers.SGD(0.01), OfAWeight(reduction=None))
        return model

    x, y = numbers(11, 6, 5, 3), numbers(11, 6, 5, 2)
    more = {"mesh": tnt.Mesh(height=2), "layouts": {"a|b": HEIGHT}} if distributed else {}
    return train(made, {"x": x, "y": y, "batch_size": 6, "epochs": 2}, distributed, more=more)


def test_a_loss_that_looks_at_weights(ranks):
    compare(ranks, 2, of_a_weight)


class Private(keras.Model):
    """Each sample's gradient is clipped by itself (Abadi et al., "Deep Learning with Differential
    Privacy")."""

    def train_step(self, batch: Any) -> dict[str, Any]:
        x, y = batch
        weights = self.trainable_variables
        with tf.GradientTape() as tape:
            losses = tf.reduce_mean(tf.square(self(x, training=True) - y), -1)
        each = tape.jacobian(losses, weights)
        flat = [tf.reshape(g, (tf.shape(x)[0], -1)) for g in each]
        by = tf.minimum(tf.constant(1, x.dtype), 0.1 / tf.norm(tf.concat(flat, 1), axis=1))
        count = tf.cast(tf.shape(x)[0], x.dtype)
        self.optimizer.apply([tf.einsum("i...,i->...", g, by) / count for g in each], weights)
        return {"loss": tf.reduce_mean(losses), "clipped": tf.reduce_mean(by)}


def private(distributed: bool) -> Outcome:
    def make() -> keras.Model:
        x = keras.Input((8,))
        return Private(x, L.Dense(6, name="b")(L.Dense(9, "tanh", name="a")(x)))

    return trained(make, keras.optimizers.SGD, MESHES["weights"][1:], distributed)


def test_gradients_of_each_sample(ranks):
    compare(ranks, 2, private, rtol=1e-8, atol=1e-10)
