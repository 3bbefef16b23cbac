"""Code of people's own that looks at several samples of a batch: what ranks make of it is what one
process makes of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.parallel.outcome import Outcome, compare, train

L, K = keras.layers, keras.ops
BATCH, FEATURES, CLASSES = 12, 6, 3


def data() -> tuple[np.ndarray, np.ndarray]:
    """Labels of -1 are to be ignored: of the first batch, all that the first ranks have."""
    draw = np.random.default_rng(0)
    x = draw.normal(size=(30, FEATURES)).astype("float32")
    y = draw.integers(-1, CLASSES, 30)
    y[:7] = -1
    return x, y


def _chosen(y: Any, p: Any) -> Any:
    return K.sum(K.one_hot(K.maximum(K.cast(y, "int32"), 0), CLASSES) * p, -1)


def ignoring(y: Any, p: Any) -> Any:
    y = K.reshape(y, (-1,))
    valid = K.cast(y >= 0, p.dtype)
    return K.sum(K.square(1 - _chosen(y, p)) * valid) / K.maximum(K.sum(valid), 1.0)


def without_nan(y: Any, p: Any) -> Any:
    y = K.where(K.reshape(y, (-1,)) < 0, np.nan, 1.0)
    there = K.logical_not(K.isnan(y))
    off = K.where(there, K.square(K.where(there, y, 0.0) - p[:, 0]), 0.0)
    return K.sum(off) / K.sum(K.cast(there, "float32"))


def hard_negatives(y: Any, p: Any) -> Any:
    groups = K.reshape(K.sum(K.square(p), -1), (-1, 2, 3))
    return K.mean(K.max(groups, -1) - K.min(groups, -1))


def triplets(y: Any, p: Any) -> Any:
    anchor, near, far = p[0::3], p[1::3], p[2::3]
    apart = K.sum(K.square(anchor - near), -1) - K.sum(K.square(anchor - far), -1)
    return K.mean(K.relu(apart + 0.5))


@tf.function
def _half(x: Any) -> Any:
    return tf.shape(x)[0] // 2


def of_sizes(y: Any, p: Any) -> Any:
    """Samples counted in several dimensions, from the end, in functions and in whole numbers."""
    n = tf.shape(p)[0]
    both = tf.concat([p, 2 * p], 0)
    alike = tf.matmul(both, both, transpose_b=True)
    pairs = tf.reshape(p[:, None] * p[None], [n, n, -1])
    image = tf.stop_gradient(tf.image.adjust_contrast(p[:, :, None], 2.0))  # n is its height
    spectrum = tf.abs(tf.reduce_sum(tf.complex(p, 2 * p), 0))
    rounded = tf.reduce_mean(7 * tf.cast(y > 0, tf.int32))
    chosen = tf.switch_case(n % 3, [lambda: p, lambda: 2 * p, lambda: 3 * p])
    terms = [
        tf.exp(-alike[:n, n:]), tf.slice(alike, [n, 0], [n, n]), tf.slice(both, [n, 0], [-1, -1]),
        both[-1 * n :], tf.tanh(pairs), image, tf.square(p - p[:1]), chosen,
        spectrum / tf.cast(_half(p) + rounded, p.dtype),
    ]  # fmt: skip
    return sum(tf.reduce_mean(tf.square(term)) for term in terms)


def in_turn(y: Any, p: Any) -> Any:
    """CTC, whose loops TensorFlow writes as it did long ago."""
    labels = tf.maximum(tf.cast(tf.reshape(y, (-1, 1)), tf.int32), 0) % 2 + 1
    return keras.losses.CTC()(labels, tf.math.log(tf.stack([p, p[:, ::-1], p], 1)))


def f1(y: Any, p: Any) -> Any:
    """One number for a batch."""
    true = K.cast(K.reshape(y, (-1,)) > 0, "float32")
    found = K.cast(p[:, 0] > 0.3, "float32")
    return 2 * K.sum(true * found) / (K.sum(true) + K.sum(found) + 1e-7)


def r2(y: Any, p: Any) -> Any:
    y = K.cast(K.reshape(y, (-1,)), "float32")
    return 1 - K.sum(K.square(y - p[:, 0])) / K.sum(K.square(y - K.mean(y)))


class Share(L.Layer):
    """Keeps, in a variable of TensorFlow, how many units are active."""

    def __init__(self) -> None:
        super().__init__()
        self.share = tf.Variable(0.5, trainable=False)

    def call(self, x: Any, training: bool = False) -> Any:
        if training:
            active = tf.reduce_mean(tf.cast(x > 0, tf.float32))
            self.share.assign(0.9 * self.share + 0.1 * tf.square(active))
        return x * self.share


class Switch(L.Layer):
    """Experts that are chosen, and are to be chosen alike often."""

    def build(self, shape: Any) -> None:
        self.gate, self.experts = L.Dense(4, "softmax"), L.Dense(4 * FEATURES)

    def call(self, x: Any) -> Any:
        gates = self.gate(x)
        chosen = K.one_hot(K.argmax(gates, -1), 4)
        self.add_loss(0.1 * 4 * K.sum(K.mean(chosen, 0) * K.mean(gates, 0)))
        each = K.reshape(self.experts(x), (-1, 4, FEATURES))
        return x + K.sum(each * (chosen * gates)[..., None], 1)


class OfMasked(L.Layer):
    """Batch norm of steps, of which some do not count."""

    def build(self, shape: Any) -> None:
        self.norm = L.BatchNormalization(synchronized=True)

    def call(self, x: Any, training: bool = False) -> Any:
        steps = K.reshape(x, (-1, 3, 2))
        normed = self.norm(steps, training=training, mask=steps[..., 0] > 0)
        return K.reshape(normed, (-1, FEATURES))


class Placed(L.Layer):
    """Looks rows of a weight up by positions, which are of no sample, and of another one by both:
    an optimizer squares each slice that it is given."""

    def build(self, shape: Any) -> None:
        self.places, self.both = L.Embedding(3, 2), L.Embedding(4, 2)

    def call(self, x: Any) -> Any:
        places = tf.range(3)
        words = K.cast(x[:, ::2] > 0, "int32")
        steps = K.reshape(x, (-1, 3, 2)) + self.places(places)
        return K.reshape(steps * self.both(places + 1) + self.both(words), (-1, FEATURES))


def _model(between: Any = None, loss: Any = ignoring, **more: Any) -> keras.Model:
    inputs = keras.Input((FEATURES,))
    x = L.Dense(FEATURES, "tanh")(inputs)
    x = x if between is None else between(x)
    model = keras.Model(inputs, L.Dense(CLASSES, "softmax")(x))
    model.compile(keras.optimizers.Adam(0.01), loss, **more)
    return model


class Stepping(keras.Model):
    """A model whose step a test writes."""

    step: Callable[..., dict[str, Any]]

    def __init__(self) -> None:
        super().__init__()
        self.inner = keras.Sequential([L.Input((FEATURES,)), L.Dense(5, "tanh"), L.Dense(CLASSES)])
        self.queue = self.add_weight(
            shape=(8, CLASSES), initializer="ones", trainable=False, name="queue"
        )
        self.kept = [tf.Variable(tf.zeros_like(w), False) for w in self.inner.trainable_weights]
        self.steps = tf.Variable(0, trainable=False)
        self.total = keras.metrics.Sum(name="total")
        self.of_vector = keras.metrics.Mean(name="of_vector")
        self.of_one = keras.metrics.Mean(name="of_one")

    def call(self, x: Any) -> Any:
        return self.inner(x)

    def train_step(self, batch: Any) -> dict[str, Any]:
        return type(self).step(self, *batch)

    def descend(self, tape: tf.GradientTape, loss: Any) -> None:
        weights = self.inner.trainable_weights
        self.optimizer.apply(tape.gradient(loss, weights), weights)


def counting(self: Stepping, x: Any, y: Any) -> dict[str, Any]:
    with tf.GradientTape() as tape:
        outputs = self(x)
        loss = K.mean(K.square(outputs))
    self.descend(tape, loss)
    self.total.update_state(loss)
    self.of_vector.update_state(K.mean(outputs, 0))
    self.of_one.update_state(loss, 1)
    metrics = {each.name: each.result() for each in (self.total, self.of_vector, self.of_one)}
    return {**metrics, "samples": K.shape(x)[0], "sum": K.sum(outputs), "max": K.max(outputs)}


def remembering(self: Stepping, x: Any, y: Any) -> dict[str, Any]:
    """Each sample's nearest neighbour in a queue of earlier ones (NNCLR)."""
    with tf.GradientTape() as tape:
        found = K.normalize(self(x))
        nearest = K.take(self.queue, K.argmax(found @ K.transpose(self.queue), 1), 0)
        alike = nearest @ K.transpose(K.normalize(self(K.flip(x, 1)))) / 0.1
        labels = K.arange(K.shape(x)[0])
        loss = K.mean(keras.losses.sparse_categorical_crossentropy(labels, alike, from_logits=True))
    self.descend(tape, loss)
    self.queue.assign(K.concatenate([K.stop_gradient(found), self.queue], 0)[:8])
    return {"loss": loss}


def of_each_sample(self: Stepping, x: Any, y: Any) -> dict[str, Any]:
    """Gradients of each sample, clipped (DP-SGD)."""
    with tf.GradientTape() as tape:
        losses = K.sum(K.square(self(x)), -1)
    weights = self.inner.trainable_weights
    each = tape.jacobian(losses, weights)
    norms = K.sqrt(sum(K.sum(K.square(K.reshape(g, (K.shape(x)[0], -1))), 1) for g in each))
    scale = K.minimum(1.0, 0.5 / norms)
    clipped = [K.mean(K.reshape(scale, (-1, *[1] * (len(g.shape) - 1))) * g, 0) for g in each]
    self.optimizer.apply(clipped, weights)
    return {"norm": K.max(norms)}


def in_two_steps(self: Stepping, x: Any, y: Any) -> dict[str, Any]:
    """Weights as they would be after a step, and the gradient through it (MAML)."""
    first, second = self.inner.layers
    with tf.GradientTape() as outer:
        kernel = tf.convert_to_tensor(second.kernel)
        with tf.GradientTape() as tape:
            tape.watch(kernel)
            before = K.mean(K.square(first(x) @ kernel + second.bias))
        later = kernel - 0.1 * tape.gradient(before, kernel)
        after = K.sqrt(K.mean(K.square(first(K.flip(x, 1)) @ later - 1)))
    self.descend(outer, after)
    return {"after": after}


def by_hand(self: Stepping, x: Any, y: Any) -> dict[str, Any]:
    """Without an optimizer."""
    with tf.GradientTape() as tape:
        loss = K.var(self(x))
    weights = self.inner.trainable_weights
    for weight, gradient in zip(weights, tape.gradient(loss, weights), strict=True):
        weight.assign_sub(0.1 * gradient)
    return {"loss": loss}


def accumulated(self: Stepping, x: Any, y: Any) -> dict[str, Any]:
    """In a loop over micro-batches, and clipped together."""
    weights = self.inner.trainable_weights
    sums = [tf.zeros_like(weight) for weight in weights]
    for part in tf.split(tf.reshape(x[:6], (6, FEATURES)), 2):
        with tf.GradientTape() as tape:
            loss = K.logsumexp(self(part))
        found = tape.gradient(loss, weights)
        sums = [one + other for one, other in zip(sums, found, strict=True)]
    clipped, norm = tf.clip_by_global_norm(sums, 0.5)
    self.optimizer.apply(clipped, weights)
    return {"norm": norm}


def now_and_then(self: Stepping, x: Any, y: Any) -> dict[str, Any]:
    """Gradients that variables add up, applied in every other step."""
    weights = self.inner.trainable_weights
    with tf.GradientTape() as tape:
        loss = K.mean(K.square(self(x)))
    for kept, gradient in zip(self.kept, tape.gradient(loss, weights), strict=True):
        kept.assign_add(gradient)

    def apply() -> None:
        self.optimizer.apply(self.kept, weights)
        for kept in self.kept:
            kept.assign(tf.zeros_like(kept))

    tf.cond(self.steps.assign_add(1) % 2 == 0, apply, lambda: None)
    return {"loss": loss}


class Ratio(keras.Model):
    def compute_metrics(self, x: Any, y: Any, y_pred: Any, sample_weight: Any = None) -> Any:
        ratio = K.sum(y_pred[:, 0]) / K.sum(y_pred[:, 1])
        return {**super().compute_metrics(x, y, y_pred, sample_weight), "ratio": ratio}

    def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True) -> Any:
        return K.sqrt(ignoring(y, y_pred))


def ratio() -> keras.Model:
    inputs = keras.Input((FEATURES,))
    model = Ratio(inputs, L.Dense(CLASSES, "softmax")(inputs))
    model.compile("sgd", "mse")
    return model


class OfPairs(keras.Model):
    """Only its step knows how it is called, and calls a layer more; nothing is built."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder, self.head = L.Dense(4, "relu"), L.Dense(CLASSES, "softmax")

    def call(self, pair: Any) -> Any:
        return self.encoder(pair[0]) - self.encoder(pair[1])

    def train_step(self, batch: Any) -> dict[str, Any]:
        x, y = batch
        with tf.GradientTape() as tape:
            outputs = self.head(self([x, K.flip(x, 1)]))
            loss = ignoring(y, outputs)
        weights = self.trainable_weights
        self.optimizer.apply(tape.gradient(loss, weights), weights)
        return {"loss": loss, **self.compute_metrics(x, y, outputs)}


def of_pairs() -> keras.Model:
    model = OfPairs()
    model.compile(keras.optimizers.Adam(0.01), metrics=[f1])
    return model


def stepping(step: Callable[..., dict[str, Any]]) -> Callable[[], keras.Model]:
    def make() -> keras.Model:
        model = type("Of", (Stepping,), {"step": step})()
        model.build((None, FEATURES))
        model.compile(keras.optimizers.Adam(0.01))
        return model

    return make


MODELS: dict[str, Callable[[], keras.Model]] = {
    "labels that are ignored": lambda: _model(metrics=[f1, r2]),
    "labels that lack": lambda: _model(loss=without_nan),
    "hard negatives": lambda: _model(loss=hard_negatives),
    "triplets": lambda: _model(loss=triplets),
    "sizes everywhere": lambda: _model(loss=of_sizes),
    "labels in turn": lambda: _model(loss=in_turn),
    "a share that is kept": lambda: _model(Share()),
    "experts": lambda: _model(Switch()),
    "batch norm under a mask": lambda: _model(OfMasked()),
    "dropout and noise": lambda: _model(lambda x: L.GaussianNoise(0.2)(L.Dropout(0.4)(x))),
    "centred": lambda: _model(L.Lambda(lambda x: x - K.mean(x, 0))),
    "rows of no sample": lambda: _model(Placed()),
    "its own loss and metrics": ratio,
    "of_pairs": of_pairs,
    **{
        step.__name__: stepping(step)
        for step in (
            counting,
            remembering,
            of_each_sample,
            in_two_steps,
            by_hand,
            accumulated,
            now_and_then,
        )
    },
}


def run(kind: str, distributed: bool) -> Outcome:
    x, y = data()
    fit = {"x": x, "y": y, "batch_size": BATCH, "epochs": 2, "shuffle": False}
    evaluated = {"x": x[:18], "y": y[:18], "batch_size": BATCH} if " " in kind else None
    return train(MODELS[kind], fit, distributed, evaluated)


def run_normed(distributed: bool) -> Outcome:
    x, y = data()
    fit = {"x": x, "y": y, "batch_size": BATCH, "epochs": 2, "shuffle": False}
    return train(
        lambda: _model(L.BatchNormalization()), fit, distributed, {"x": x, "y": y},
        more={"batch_norm": "whole"},
    )  # fmt: skip


def test_batch_norm_of_the_whole_batch(ranks):
    compare(ranks, 3, run_normed)


@pytest.mark.parametrize("kind", MODELS)
def test_what_one_process_makes_of_it(ranks, kind):
    compare(ranks, 3, run, kind)


def in_python() -> keras.Model:
    between = keras.Sequential([L.BatchNormalization(), L.Dropout(0.3), Share()])
    return _model(between, run_eagerly=True, metrics=[f1])


class OfWords(keras.Model):
    """Learns from sentences that are as long as they are."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = keras.Sequential([L.Input(()), L.Embedding(9, CLASSES)])

    def train_step(self, batch: Any) -> dict[str, Any]:
        words, y = batch
        with tf.GradientTape() as tape:
            means = tf.reduce_mean(words.with_flat_values(self.inner(words.flat_values)), 1)
            loss = ignoring(y, means)
        weights = self.inner.trainable_weights
        self.optimizer.apply(tape.gradient(loss, weights), weights)
        return {"loss": loss}


def of_ragged() -> keras.Model:
    model = OfWords()
    model.compile(keras.optimizers.Adam(0.01))
    return model


def of_sparse() -> keras.Model:
    inputs = keras.Input((8,), sparse=True)
    model = keras.Model(inputs, L.Dense(CLASSES, "softmax")(L.Dense(FEATURES)(inputs)))
    model.compile(keras.optimizers.Adam(0.01), ignoring, metrics=[f1])
    return model


def run_input(kind: str, distributed: bool) -> Outcome:
    x, y = data()
    draw = np.random.default_rng(1)
    if kind == "in_python":
        given = x
    elif kind == "of_ragged":
        given = tf.ragged.constant([list(draw.integers(0, 9, n)) for n in draw.integers(1, 5, 30)])
    else:
        given = tf.sparse.from_dense(draw.binomial(1, 0.3, (30, 8)).astype("float32"))
    batches = tf.data.Dataset.from_tensor_slices((given, y)).batch(BATCH)
    make = {"in_python": in_python, "of_ragged": of_ragged, "of_sparse": of_sparse}[kind]
    evaluated = None if kind == "of_ragged" else {"x": batches}
    return train(make, {"x": batches, "epochs": 2}, distributed, evaluated)


@pytest.mark.parametrize("kind", ["in_python", "of_ragged", "of_sparse"])
def test_what_is_computed_whole_on_every_rank(ranks, kind):
    compare(ranks, 3, run_input, kind)
