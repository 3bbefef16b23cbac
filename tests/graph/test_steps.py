"""Keras's own training steps, and steps of users, on ranks: weights, optimizers, metrics and logs
are those of one process."""

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.graph.together import OnAllRanks, uneven
from tnt_notebook.comm import world

L, ops = keras.layers, keras.ops
ROWS, WORDS, CLASSES = 8, 12, 3


def ignoring(y: Any, p: Any) -> Any:
    """A loss whose denominator is of the batch: labels of -1 do not count."""
    valid = ops.cast(y >= 0, p.dtype)
    loss = keras.losses.sparse_categorical_crossentropy(ops.maximum(y, 0), p, from_logits=True)
    return ops.sum(loss * valid) / ops.maximum(ops.sum(valid), 1)


def convolutional() -> keras.Model:
    layers = [
        L.Reshape((4, 2, 1)), L.Conv2D(4, 3, padding="same", activation="relu"),
        L.BatchNormalization(), L.MaxPooling2D(2, padding="same"), L.Flatten(), L.Dropout(0.3),
        L.GaussianNoise(0.1), L.Dense(CLASSES),
    ]  # fmt: skip
    return keras.Sequential([L.Input((ROWS,)), *layers])


def recurrent() -> keras.Model:
    layers = [L.Reshape((4, 2)), L.LSTM(3, return_sequences=True), L.GRU(3), L.Dense(CLASSES)]
    return keras.Sequential([L.Input((ROWS,)), *layers])


def attending() -> keras.Model:
    words = L.Input((ROWS,))
    x = L.Embedding(WORDS, 6)(ops.cast(ops.abs(words) * 4, "int32") % WORDS)
    x = L.LayerNormalization()(
        x + L.MultiHeadAttention(2, 3, dropout=0.1)(x, x, use_causal_mask=True)
    )
    return keras.Model(words, L.Dense(CLASSES)(L.GlobalAveragePooling1D()(x)))


class Contrasting(keras.Model):
    """Each sample beside all others, gradients that are clipped together, and a counter."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = keras.Sequential([L.Input((ROWS,)), L.Dense(5, "tanh"), L.Dense(CLASSES)])
        self.seen = self.add_weight(shape=(), initializer="zeros", trainable=False, name="seen")

    def call(self, x: Any) -> Any:
        return self.inner(x)

    def train_step(self, batch: Any) -> dict[str, Any]:
        x, _ = batch
        count = ops.shape(x)[0]
        with tf.GradientTape() as tape:
            one, other = (ops.normalize(self(each)) for each in (x, ops.flip(x, 1)))
            alike = one @ ops.transpose(other) / 0.1
            numbers = ops.arange(count)
            loss = ops.mean(
                keras.losses.sparse_categorical_crossentropy(numbers, alike, from_logits=True)
            )
            loss += 0.1 * ops.var(one)
        gradients = tape.gradient(loss, self.trainable_variables)
        gradients, norm = tf.clip_by_global_norm(gradients, 0.05)
        self.optimizer.apply(gradients, self.trainable_variables)
        self.seen.assign_add(ops.cast(count, self.seen.dtype))
        right = ops.mean(keras.metrics.sparse_categorical_accuracy(numbers, alike))
        return {"loss": loss, "norm": norm, "right": right}


class Adversarial(keras.Model):
    """What is drawn beside what is real, one batch after the other."""

    def __init__(self) -> None:
        super().__init__()
        self.draw = keras.random.SeedGenerator(3)
        self.make = keras.Sequential([L.Input((2,)), L.Dense(ROWS)])
        self.inner = keras.Sequential([L.Input((ROWS,)), L.Dense(4, "relu"), L.Dense(1)])

    def call(self, x: Any) -> Any:
        return self.inner(x)

    def train_step(self, batch: Any) -> dict[str, Any]:
        x, _ = batch
        count = ops.shape(x)[0]
        made = self.make(keras.random.normal((count, 2), seed=self.draw))
        both = ops.concatenate([made, x], 0)
        labels = ops.concatenate([ops.ones((count, 1)), ops.zeros((count, 1))], 0)
        labels += 0.05 * tf.random.stateless_uniform(tf.shape(labels), (1, 2), dtype=labels.dtype)
        with tf.GradientTape() as tape:
            judged = self(both)
            loss = keras.losses.binary_crossentropy(labels, judged, from_logits=True)
            loss = ops.mean(loss)
        gradients = tape.gradient(loss, self.inner.trainable_weights)
        self.optimizer.apply(gradients, self.inner.trainable_weights)
        return {"loss": loss, "made": ops.mean(judged[:count]), "real": ops.mean(judged[count:])}


MODELS: dict[str, Callable[[], keras.Model]] = {
    "convolutional": convolutional,
    "recurrent": recurrent,
    "attending": attending,
    "contrasting": Contrasting,
    "adversarial": Adversarial,
}


def trained(name: str, alone: bool) -> tuple[list[np.ndarray], list[float], list[str]]:
    """Variables after some steps, the last logs, and ops without a rule. Runs on ranks."""
    floatx, policy = keras.config.floatx(), keras.config.dtype_policy()
    keras.config.set_floatx("float64")
    keras.config.set_dtype_policy("float64")  # which remembers floatx where it was asked before
    try:
        keras.utils.set_random_seed(1)
        model = MODELS[name]()
        model.build((None, ROWS))
        of_keras = type(model).train_step is keras.Model.train_step
        model.compile(
            keras.optimizers.Adam(0.01, global_clipnorm=0.5),
            ignoring if of_keras else None,
            metrics=["accuracy"] if of_keras else None,
            jit_compile=False,
        )
        specs = [tf.TensorSpec((None, ROWS), tf.float64), tf.TensorSpec((None,), tf.int64)]
        step = OnAllRanks(lambda x, y: model.train_step((x, y)), specs)
        draw = np.random.default_rng(0)
        for i, rows in enumerate((7, 2, 5)):
            batch = [draw.normal(size=(rows, ROWS)), draw.integers(-1, CLASSES, rows)]
            cuts = uneven(i, rows, world().size)
            logs = step.alone(batch) if alone else step.together(batch, cuts)
        values = [np.asarray(variable) for variable in model.variables]
        return values, [float(logs[key]) for key in sorted(logs)], step.without_rule
    finally:
        keras.config.set_floatx(floatx)
        keras.config.set_dtype_policy(policy)


@pytest.mark.parametrize("name", MODELS)
def test_a_step_is_that_of_one_process(ranks, name):
    ((wanted, logs, _),) = ranks.run(1, trained, name, True)
    for values, own_logs, without_rule in ranks.run(3, trained, name, False):
        for one, many in zip(wanted, values, strict=True):
            np.testing.assert_allclose(many, one, rtol=1e-9, atol=1e-10)
        np.testing.assert_allclose(own_logs, logs, rtol=1e-9)
        assert not without_rule


def waiting() -> tuple[int, int]:
    """How many gradients of a large weight are chosen by whether a rank has samples, and for how
    many ops these wait beside what they choose from. Runs on ranks."""
    weight, seen = tf.Variable(tf.ones((ROWS, 1024))), tf.Variable(0.0)

    def step(x: tf.Tensor) -> tf.Tensor:
        seen.assign_add(1.0)
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum((x @ weight) ** 2)
        return tape.gradient(loss, weight)

    both = OnAllRanks(step, [tf.TensorSpec((None, ROWS))])
    both.together([np.ones((3, ROWS), np.float32)], [0, 1, 3])
    chosen = [op for op in both.operations() if op.type == "Merge"]
    return len(chosen), sum(len(op.control_inputs) for op in chosen)


def test_a_gradient_waits_for_nothing_that_it_is_not_made_of(ranks):
    assert ranks.run(2, waiting) == [(1, 0), (1, 0)]
