"""Which rows of a batch a rank takes, where tensors have different numbers of them; and what of the
ranks' predictions is one process's."""

from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import tnt_notebook as tnt
from tests.parallel.outcome import Outcome, close, compare, train
from tnt_notebook.errors import DifferentDataError, PeerError

L = keras.layers


class Matching(keras.Model):
    """Learns from labelled samples, and from unlabelled ones, as FixMatch does."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = keras.Sequential([keras.Input((4,)), L.Dense(3)])

    def call(self, x: Any) -> Any:
        return self.inner(x)

    def train_step(self, batch: Any) -> dict[str, Any]:
        (x, y), (unlabelled, weight) = batch
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((self(x) - y) ** 2)
            loss += weight * tf.reduce_mean(self(unlabelled) ** 2)
        gradients = tape.gradient(loss, self.trainable_variables)
        self.optimizer.apply(gradients, self.trainable_variables)
        return {"loss": loss}


def batches(labelled: int, unlabelled: int) -> tf.data.Dataset:
    draw = np.random.default_rng(0)
    given = draw.normal(size=(12, 4)), draw.normal(size=(12, 3))
    first = tf.data.Dataset.from_tensor_slices(tuple(a.astype("float32") for a in given))
    second = tf.data.Dataset.from_tensor_slices(draw.normal(size=(54, 4)).astype("float32"))
    weighed = second.batch(unlabelled).map(lambda x: (x, tf.constant(0.5)))
    return tf.data.Dataset.zip((first.batch(labelled), weighed))


def matched(distributed: bool, labelled: int, unlabelled: int) -> list[np.ndarray]:
    keras.utils.set_random_seed(1)
    model = Matching()
    model.build((None, 4))
    model.compile(keras.optimizers.SGD(0.1))
    ours = tnt.Model(model) if distributed else model
    ours.fit(batches(labelled, unlabelled), epochs=2, verbose=0)
    return model.get_weights()


@pytest.mark.parametrize("lengths", [(6, 18), (2, 18)])
def test_each_tensor_is_cut_by_its_own_length(ranks, lengths):
    (alone,) = ranks.run(1, matched, False, *lengths)
    for ours in ranks.run(3, matched, True, *lengths):
        close(ours, alone)


def refused() -> list[str]:
    model = keras.Sequential([keras.Input((4,)), L.Dense(3)])
    model.compile("sgd", "mse")
    x, y = np.zeros((12, 4), "float32"), np.zeros((12, 3), "float32")
    dataset = tf.data.Dataset.from_tensor_slices((x, y)).batch(6)
    with_vector = dataset.map(lambda x, y: (x, y, tf.constant([1.0, 2.0])))
    with pytest.raises((tf.errors.InvalidArgumentError, PeerError)) as said:
        tnt.Model(model).fit(with_vector, verbose=0)
    before = model.get_weights()
    odd = np.random.default_rng(tnt.world().rank).normal(size=(12, 4))
    with pytest.raises(DifferentDataError) as other:
        tnt.Model(model).fit(odd, y, verbose=0)
    with pytest.raises(DifferentDataError):
        tnt.Model(model).fit(x, y, validation_data=(odd, y), verbose=0)
    with pytest.raises(DifferentDataError):
        tnt.Model(model).predict(odd, verbose=0)
    close(model.get_weights(), before)
    return [str(said.value), str(other.value)]


def test_what_is_no_batch_and_other_samples_are_refused_before_the_first_step(ranks):
    for of_vector, of_others in ranks.run(2, refused):
        assert "tensors of different lengths" in of_vector and "[6] [6] [2]" in of_vector
        assert "Ranks [1] got different samples from rank 0" in of_others


class Twice(keras.Model):
    """Gives two rows for a sample, as detectors give boxes."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = L.Dense(3)

    def call(self, x: Any) -> Any:
        y = self.inner(x)
        return tf.reshape(tf.concat([y, 2 * y], 1), (-1, 3))


def predicted(distributed: bool) -> np.ndarray:
    keras.utils.set_random_seed(1)
    model = Twice()
    model.build((None, 4))
    x = np.random.default_rng(0).normal(size=(22, 4)).astype("float32")
    return (tnt.Model(model) if distributed else model).predict(x, batch_size=10, verbose=0)


def test_all_rows_of_a_sample_are_predicted(ranks):
    (alone,) = ranks.run(1, predicted, False)
    for ours in ranks.run(3, predicted, True):
        close(ours, alone)


def measured(distributed: bool) -> Any:
    """Metrics of several numbers, and what a callback adds."""
    keras.utils.set_random_seed(1)
    metrics = [
        keras.metrics.F1Score(),
        keras.metrics.R2Score(None),
        keras.metrics.Recall([0.3, 0.6]),
    ]
    model = keras.Sequential([keras.Input((4,)), L.Dense(3, "softmax")])
    model.compile("sgd", "categorical_crossentropy", metrics=metrics)

    class Adds(keras.callbacks.Callback):
        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            logs["added"] = np.arange(3.0) + epoch

    x = np.random.default_rng(0).normal(size=(20, 4)).astype("float32")
    y = np.eye(3, dtype="float32")[np.arange(20) % 3]
    ours = tnt.Model(model) if distributed else model
    history = ours.fit(x, y, 10, 2, verbose=0, callbacks=[Adds()], validation_data=(x, y)).history
    return [np.asarray(each) for each in history.values()]


def test_metrics_of_several_numbers(ranks):
    (alone,) = ranks.run(1, measured, False)
    for ours in ranks.run(2, measured, True):
        close(ours, alone)


def of_images(distributed: bool) -> Outcome:
    """The last batch has one sample: of none, TensorFlow's convolutions make wrong shapes, and the
    gradient of its pooling ends the process."""

    def made() -> keras.Model:
        model = keras.Sequential([
            keras.Input((6, 6, 2)), L.Conv2D(4, 3, activation="relu"), L.MaxPooling2D(2),
            L.DepthwiseConv2D(2), L.GroupNormalization(2), L.Flatten(), L.Dropout(0.2), L.Dense(3),
        ])  # fmt: skip
        model.compile(keras.optimizers.Adam(0.01), "mse", metrics=["mae"])
        return model

    draw = np.random.default_rng(0)
    x = draw.normal(size=(13, 6, 6, 2)).astype("float32")
    data = {"x": x, "y": draw.normal(size=(13, 3)).astype("float32"), "batch_size": 6}
    return train(made, data | {"epochs": 2, "shuffle": False}, distributed, data)


def test_ranks_without_samples(ranks):
    compare(ranks, 3, of_images)
