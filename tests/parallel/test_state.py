"""State that steps change on their own is that of one process, whatever it is: no average alone."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers
from keras import ops as K

import tnt_notebook as tnt
from tests.parallel.models import classification
from tests.parallel.outcome import Outcome, close, compare, same_bits, train


class Watches(layers.Layer):
    """Keeps state of every kind of what passes."""

    def build(self, shape: Any) -> None:
        for name, dtype in {
            "total": "float32", "seen": "int64", "positive": "int32", "steps": "int64",
            "largest": "float32", "smallest": "float64", "average": "float32", "ever": "bool",
            "each": "float32", "first": "float32", "every_third": "float32",
        }.items():  # fmt: skip
            shape_of_it = shape[-1:] if name == "each" else ()
            start = "ones" if name == "total" else "zeros"
            made = self.add_weight(
                shape=shape_of_it, dtype=dtype, initializer=start, trainable=False, name=name
            )
            setattr(self, name, made)

    def call(self, x: Any, training: bool = False) -> Any:
        if training:
            positive = K.count_nonzero(x > 0)
            self.total.assign_add(K.sum(x))
            self.seen.assign_add(K.cast(K.shape(x)[0], "int64"))
            self.positive.assign_add(K.cast(positive, "int32"))
            self.steps.assign_add(1)
            self.largest.assign(K.maximum(self.largest, K.max(x)))
            self.smallest.assign(K.minimum(self.smallest, K.cast(K.min(x), "float64")))
            self.average.assign(0.9 * self.average + 0.1 * K.mean(x))
            self.ever.assign(K.logical_or(self.ever, positive > 0))
            self.each.assign_add(K.sum(x, 0))
            self.first.assign(x[0, 0])
            tf.cond(self.steps % 3 == 0, lambda: self.now_and_then(x), lambda: 0)
        return x

    def now_and_then(self, x: Any) -> int:
        self.every_third.assign_add(K.sum(x))
        return 0


class Largest(keras.metrics.Metric):
    start = 0.0

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        start = keras.initializers.Constant(self.start)
        self.largest = self.add_variable((), start, name="largest")

    def reset_state(self) -> None:
        self.largest.assign(self.start)

    def update_state(self, y: Any, outputs: Any, sample_weight: Any = None) -> None:
        self.largest.assign(K.maximum(self.largest, K.max(outputs)))

    def result(self) -> Any:
        return self.largest + 0


class Smallest(Largest):
    """Counts down from what no sample has."""

    start = 1e9

    def update_state(self, y: Any, outputs: Any, sample_weight: Any = None) -> None:
        self.largest.assign(K.minimum(self.largest, K.min(outputs)))


class Smoothed(Largest):
    """An exponential mean over batches."""

    def update_state(self, y: Any, outputs: Any, sample_weight: Any = None) -> None:
        self.largest.assign(0.5 * self.largest + 0.5 * K.mean(outputs))


class KeepsState(keras.Model):
    """State of its own, of what is known in the training step only."""

    def __init__(self) -> None:
        super().__init__()
        self.watches, self.last = Watches(), layers.Dense(3, "softmax")
        for name in ("smoothed_loss", "norm_of_gradients", "tested", "progress"):
            setattr(self, name, keras.Variable(0.0, trainable=False, name=name))
        self.teacher = layers.Dense(3, "softmax")  # which no optimizer trains

    def call(self, x: Any, training: bool = False) -> Any:
        return self.last(self.watches(x, training=training))

    def build(self, shape: Any) -> None:
        super().build(shape)
        self.teacher.build(shape)

    def train_step(self, data: Any) -> Any:
        x, y, _ = keras.utils.unpack_x_y_sample_weight(data)
        with tf.GradientTape() as tape:
            outputs = self(x, training=True)
            loss = self.compute_loss(x, y, outputs)
        trained = [*self.watches.trainable_variables, *self.last.trainable_variables]
        gradients = tape.gradient(loss, trained)
        self.optimizer.apply(gradients, trained)
        self.smoothed_loss.assign(0.5 * self.smoothed_loss + 0.5 * loss)
        self.norm_of_gradients.assign(tf.linalg.global_norm(gradients))
        self.progress.assign(K.minimum(1.0, self.progress + 0.3))
        for slow, fast in zip(self.teacher.weights, self.last.weights, strict=True):
            slow.assign(0.9 * slow + 0.1 * fast)
        return self.compute_metrics(x, y, outputs)

    def test_step(self, data: Any) -> Any:
        self.tested.assign_add(K.sum(data[0]))
        return super().test_step(data)


def keeps_state() -> keras.Model:
    model = KeepsState()
    metrics = [Largest(name="largest"), Smallest(name="smallest"), Smoothed(name="smoothed")]
    model.compile(keras.optimizers.SGD(0.1), "sparse_categorical_crossentropy", metrics=metrics)
    model.build((None, 8))
    return model


def run_state(distributed: bool) -> Outcome:
    # The last batch has fewer samples than there are ranks.
    x, y = (values[:50] for values in classification())
    fit = {"x": x, "y": y, "batch_size": 16, "epochs": 2, "validation_data": (x[:20], y[:20])}
    return train(keeps_state, fit, distributed, {"x": x, "y": y, "batch_size": 12})


@pytest.mark.core
def test_state_of_every_kind_is_that_of_one_process(ranks):
    compare(ranks, 3, run_state)


def keep_state_of_batches(distributed: bool) -> Any:
    keras.utils.set_random_seed(1)
    model = keeps_state()
    trained = tnt.Model(model) if distributed else model
    x, y = classification()
    # Of 17 samples rank 0 has as many as of 16: only rank 1 traces its step again.
    logs = [trained.train_on_batch(x[:n], y[:n], return_dict=True) for n in (16, 17, 16)]
    return [{k: float(v) for k, v in log.items()} for log in logs], model.get_weights()


@pytest.mark.core
def test_state_after_single_batches_of_other_sizes(ranks):
    (alone,) = ranks.run(1, keep_state_of_batches, False)
    close(ranks.run(2, keep_state_of_batches, True), [alone] * 2)


class Spread(layers.Layer):
    """Keeps the standard deviation of a batch, which parts of it do not tell."""

    def __init__(self, rule: str | None = None, **options: Any) -> None:
        super().__init__()
        self.rule, self.options = rule, options

    def build(self, shape: Any) -> None:
        self.spread = self.add_weight(initializer="zeros", trainable=False, **self.options)
        if self.rule:
            tnt.combine(self.spread, self.rule)

    def call(self, x: Any, training: bool = False) -> Any:
        if training:
            self.spread.assign(K.std(x))
        return x


def keep_spread(rule: str | None, options: dict[str, Any]) -> Any:
    spread = Spread(rule, **options)
    model = keras.Sequential([keras.Input((8,)), spread, layers.Dense(1)])
    model.compile("sgd", "mse")
    x, y = (values[:8] for values in classification())
    ours = tnt.Model(model, exchange="local:every=100")  # ranks do not run a step together
    ours.fit(x, y, batch_size=8, epochs=1, shuffle=False, verbose=0)
    return float(spread.spread.value)


#: What is said, and what becomes of parts of 2, 3 and 3 samples.
SAID = {
    "by a rule": ("mean", {}, lambda parts: np.average(parts, weights=[2, 3, 3])),
    "for Keras": (None, {"aggregation": "only_first_replica"}, lambda parts: parts[0]),
    "for both": ("max", {"aggregation": "sum"}, max),
}


@pytest.mark.parametrize("case", SAID)
def test_state_combines_as_it_is_said(ranks, case):
    rule, options, expected = SAID[case]
    x, _ = classification()
    parts = [float(np.std(x[begin:end])) for begin, end in ((0, 2), (2, 5), (5, 8))]
    close(ranks.run(3, keep_spread, rule, options), [expected(parts)] * 3)


class Noisy(keras.Model):
    """Sums up what has passed a layer that draws, and one that normalizes."""

    def __init__(self) -> None:
        super().__init__()
        self.before = [layers.GaussianNoise(1.0), layers.Dropout(0.5), layers.BatchNormalization()]
        self.watches, self.last = Watches(), layers.Dense(3)

    def call(self, x: Any, training: bool = False) -> Any:
        for layer in self.before:
            x = layer(x, training=training)
        return self.last(self.watches(x, training=training))


def keep_state_of_noise() -> Any:
    model = Noisy()
    model.compile("sgd", "mse")
    x, _ = classification()
    tnt.Model(model).fit(x, x[:, :3], batch_size=16, epochs=1, verbose=0)
    watches = model.watches
    return [np.asarray(v.value) for v in (watches.seen, watches.total, watches.steps)]


@pytest.mark.core
def test_the_rule_is_found_where_layers_draw_and_normalize(ranks):
    first, *others = ranks.run(3, keep_state_of_noise)
    assert (first[0], first[2]) == (50, 4)
    for other in others:
        same_bits(other, first)


class Counts(layers.Layer):
    """Counts samples, also where it does not learn."""

    def build(self, shape: Any) -> None:
        self.seen = self.add_weight(dtype="int32", initializer="zeros", trainable=False)

    def call(self, x: Any) -> Any:
        self.seen.assign_add(K.shape(x)[0])
        return x


def predict_and_count() -> Any:
    counts = Counts()
    model = tnt.Model(keras.Sequential([keras.Input((8,)), counts, layers.Dense(3)]))
    model.predict(classification()[0], batch_size=16, verbose=0)
    return int(counts.seen.value)


def test_predict_counts_all_samples(ranks):
    assert ranks.run(3, predict_and_count) == [50] * 3
