"""Small models and their data, one of each kind that people train."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import tensorflow as tf
from keras import layers

SAMPLES = 50  # in batches of 16 the last has 2: fewer than ranks


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def classification(features: int = 8, samples: int = SAMPLES) -> tuple[np.ndarray, np.ndarray]:
    x = rng().normal(size=(samples, features)).astype("float32")
    return x, (np.abs(x).sum(1) * 1.7).astype("int64") % 3


def from_logits(**options: Any) -> keras.losses.Loss:
    return keras.losses.SparseCategoricalCrossentropy(from_logits=True, **options)


def chain(
    *parts: Any, optimizer: Any = None, loss: Any = "sparse_categorical_crossentropy", **more: Any
) -> keras.Model:
    """A compiled Sequential of these layers; by default with plain SGD."""
    model = keras.Sequential(parts)
    more = {"metrics": ["accuracy"], **more}
    model.compile(optimizer or keras.optimizers.SGD(0.1), loss, **more)
    return model


def mlp(optimizer: Any = None, **more: Any) -> keras.Model:
    hidden = [layers.Dense(16, "tanh"), layers.Dense(8, "tanh")]
    more["optimizer"] = optimizer or keras.optimizers.SGD(0.1, momentum=0.9)
    return chain(keras.Input((8,)), *hidden, layers.Dense(3), loss=from_logits(), **more)


def unbuilt_mlp() -> keras.Model:
    return chain(layers.Dense(16, "tanh"), layers.Dense(3), optimizer="sgd", loss=from_logits())


def cnn() -> keras.Model:
    return chain(
        keras.Input((8, 8, 1)),
        layers.Conv2D(4, 3, activation="relu"),
        layers.MaxPooling2D(),
        layers.Flatten(),
        layers.Dense(3, "softmax"),
        optimizer=keras.optimizers.SGD(0.05, momentum=0.9),
        metrics=["accuracy", keras.metrics.SparseTopKCategoricalAccuracy(2)],
    )


def images() -> tuple[np.ndarray, np.ndarray]:
    x = rng(1).normal(size=(SAMPLES, 8, 8, 1)).astype("float32")
    return x, rng(2).integers(0, 3, SAMPLES)


def several_inputs_and_outputs() -> keras.Model:
    left, right = keras.Input((8,), name="left"), keras.Input((4,), name="right")
    joined = layers.Concatenate()([layers.Dense(8, "tanh")(left), layers.Dense(4, "tanh")(right)])
    kind = layers.Dense(3, "softmax", name="kind")(joined)
    model = keras.Model([left, right], {"kind": kind, "size": layers.Dense(1, name="size")(joined)})
    model.compile(
        keras.optimizers.SGD(0.05),
        {"kind": "sparse_categorical_crossentropy", "size": "mse"},
        loss_weights={"kind": 1.0, "size": 0.3},
        metrics={"kind": ["accuracy"], "size": ["mae", keras.metrics.RootMeanSquaredError()]},
    )
    return model


def two_inputs() -> tuple[list[np.ndarray], dict[str, np.ndarray]]:
    x, y = classification()
    return [x, x[:, :4] * 2], {"kind": y, "size": x[:, :1] + x[:, 1:2]}


@keras.saving.register_keras_serializable("tests")
class Subclassed(keras.Model):
    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.hidden = layers.Dense(8, "tanh")
        self.last = layers.Dense(3, "softmax")

    def call(self, x: Any, training: bool = False) -> Any:
        return self.last(self.hidden(x))


def subclassed() -> keras.Model:
    model = Subclassed()
    model.compile(
        keras.optimizers.SGD(0.1), "sparse_categorical_crossentropy", metrics=["accuracy"]
    )
    return model


def embedding() -> keras.Model:
    """Sparse gradients; and a mask, so that the loss divides by the number of valid entries."""
    return chain(
        keras.Input((6,), dtype="int32"),
        layers.Embedding(20, 8, mask_zero=True),
        layers.LSTM(6, return_sequences=True),
        layers.Dense(3, "softmax"),
        optimizer=keras.optimizers.SGD(0.3),
    )


def words() -> tuple[np.ndarray, np.ndarray]:
    x = rng(3).integers(1, 20, (SAMPLES, 6)).astype("int32")
    x[np.arange(6)[None] >= rng(4).integers(1, 7, SAMPLES)[:, None]] = 0
    return x, x % 3


class PenaltyOnOutputs(layers.Layer):
    def call(self, x: Any) -> Any:
        self.add_loss(0.1 * keras.ops.mean(keras.ops.square(x)))
        return x


def regularized() -> keras.Model:
    return chain(
        keras.Input((8,)),
        layers.Dense(8, "tanh", kernel_regularizer="l2", activity_regularizer="l2"),
        PenaltyOnOutputs(),
        layers.Dense(3, "softmax", kernel_regularizer=keras.regularizers.L1(0.01)),
    )


def synchronised_batch_norm() -> keras.Model:
    return chain(
        keras.Input((8,)),
        layers.Dense(8),
        layers.BatchNormalization(synchronized=True),
        layers.Activation("relu"),
        layers.Dense(3, "softmax"),
    )


def summed_loss() -> keras.Model:
    own = {"optimizer": keras.optimizers.SGD(0.01), "loss": from_logits(reduction="sum")}
    return chain(keras.Input((8,)), layers.Dense(3, kernel_regularizer="l2"), **own, metrics=None)


def loss_per_weight() -> keras.Model:
    loss = from_logits(reduction="mean_with_sample_weight")
    weighted = {"metrics": None, "weighted_metrics": ["accuracy"]}
    return chain(keras.Input((8,)), layers.Dense(3), loss=loss, **weighted)


class Gan(keras.Model):
    """A custom train_step with two optimizers. The noise comes with the data."""

    def __init__(self) -> None:
        super().__init__()
        self.generator = keras.Sequential(
            [keras.Input((4,)), layers.Dense(8, "tanh"), layers.Dense(8)]
        )
        self.discriminator = keras.Sequential(
            [keras.Input((8,)), layers.Dense(8, "tanh"), layers.Dense(1)]
        )
        self.d_loss = keras.metrics.Mean(name="d_loss")
        self.g_loss = keras.metrics.Mean(name="g_loss")

    def compile(self, d_optimizer: Any, g_optimizer: Any) -> None:
        super().compile(optimizer=None)
        self.d_optimizer, self.g_optimizer = d_optimizer, g_optimizer
        self.loss_function = keras.losses.BinaryCrossentropy(from_logits=True)

    @property
    def metrics(self) -> list[keras.metrics.Metric]:
        return [self.d_loss, self.g_loss]

    def train_step(self, data: Any) -> dict[str, Any]:
        real, noise = data
        count = tf.shape(real)[0]
        fake = self.generator(noise)
        labels = tf.concat([tf.ones((count, 1)), tf.zeros((count, 1))], 0)
        with tf.GradientTape() as tape:
            guess = self.discriminator(tf.concat([real, fake], 0))
            d_loss = self.loss_function(labels, guess)
        weights = self.discriminator.trainable_weights
        self.d_optimizer.apply_gradients(zip(tape.gradient(d_loss, weights), weights, strict=True))
        with tf.GradientTape() as tape:
            g_loss = self.loss_function(
                tf.ones((count, 1)), self.discriminator(self.generator(noise))
            )
        weights = self.generator.trainable_weights
        self.g_optimizer.apply_gradients(zip(tape.gradient(g_loss, weights), weights, strict=True))
        self.d_loss.update_state(d_loss, sample_weight=count)
        self.g_loss.update_state(g_loss, sample_weight=count)
        return {"d_loss": self.d_loss.result(), "g_loss": self.g_loss.result()}


def gan() -> keras.Model:
    model = Gan()
    model.compile(keras.optimizers.SGD(0.1), keras.optimizers.Adam(0.01))
    return model


def real_and_noise() -> tuple[np.ndarray, np.ndarray]:
    noise = rng(5).normal(size=(SAMPLES, 4)).astype("float32")
    return classification()[0], noise


class Hits(keras.metrics.Metric):
    """Its result is its variable, as in Keras's own example of a metric."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.hits = self.add_weight(name="hits", initializer="zeros")

    def update_state(self, y: Any, outputs: Any, sample_weight: Any = None) -> None:
        guess = keras.ops.cast(keras.ops.argmax(outputs, axis=-1), y.dtype)
        self.hits.assign_add(keras.ops.sum(keras.ops.cast(guess == y, self.dtype)))

    def result(self) -> Any:
        return self.hits


class NamesItsMetrics(keras.Sequential):
    """Its logs are those of the guide to custom training steps."""

    def train_step(self, data: Any) -> dict[str, Any]:
        super().train_step(data)
        return {metric.name: metric.result() for metric in self.metrics}


def counts_hits() -> keras.Model:
    model = NamesItsMetrics([keras.Input((8,)), layers.Dense(16, "relu"), layers.Dense(3)])
    model.compile("sgd", from_logits(), metrics=[Hits(name="hits"), "accuracy"])
    return model


def text() -> keras.Model:
    """Its strings become words inside."""
    to_words = layers.TextVectorization(max_tokens=9, output_sequence_length=4)
    to_words.adapt(sentences()[0])
    return chain(
        keras.Input((), dtype="string"),
        to_words,
        layers.Embedding(9, 4),
        layers.GlobalAveragePooling1D(),
        layers.Dense(3, "softmax"),
    )


def sentences() -> tuple[tf.Tensor, np.ndarray]:
    words = rng(6).choice(list("abcdef"), (SAMPLES, 5))
    return tf.constant([" ".join(row) for row in words]), (words[:, 0] > "c").astype("int32")


MODELS = {
    "mlp": (mlp, classification),
    "unbuilt": (unbuilt_mlp, classification),
    "cnn": (cnn, images),
    "several inputs and outputs": (several_inputs_and_outputs, two_inputs),
    "subclassed": (subclassed, classification),
    "embedding with mask": (embedding, words),
    "regularizers and add_loss": (regularized, classification),
    "synchronised batch norm": (synchronised_batch_norm, classification),
    "loss summed": (summed_loss, classification),
    "loss divided by weights": (loss_per_weight, classification),
    "logs by the names of metrics": (counts_hits, classification),
    "text": (text, sentences),
    "gan": (gan, real_and_noise),
}
