"""What becomes of a model on a mesh between the calls of its methods."""

from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import tnt_notebook as tnt
from tests.layers.test_fit import PAIR, mlp
from tests.parallel.outcome import close
from tests.pipeline.models import numbers

MORE = {"mesh": tnt.Mesh(model=2), "layouts": PAIR}


def frozen_then_trained(distributed: bool) -> Any:
    keras.utils.set_random_seed(3)
    model = mlp()
    ours = tnt.Model(model, **MORE) if distributed else model
    x, y = numbers(12, 6), numbers(12, 3, seed=9)
    for frozen in (True, False):
        model.get_layer("first").trainable = not frozen
        model.compile(keras.optimizers.SGD(0.1), "mse")
        ours.fit(x, y, batch_size=6, verbose=0)
    return model.get_weights()


def played(distributed: bool) -> Any:
    """As in deep Q-learning: predictions and updates in turn, and a network that follows."""
    keras.utils.set_random_seed(3)
    model, target = mlp(), mlp()
    ours, followed = ((tnt.Model(one, **MORE) if distributed else one) for one in (model, target))
    for one in (model, target):
        one.compile(keras.optimizers.Adam(0.01), "mse")
    x, seen = numbers(12, 6), []
    for turn in range(3):
        wanted = 0.5 * followed.predict_on_batch(x) + 1
        seen.append(ours.train_on_batch(x, wanted))
        seen.append(ours.test_on_batch(x, wanted))
        if turn == 1:
            target.set_weights(model.get_weights())
        seen.append(ours.predict_on_batch(x))
        seen += model.get_weights()
    return [np.asarray(each) for each in seen]


class InPython(keras.Model):
    """Whose call is no graph of layers."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = keras.layers.Dense(8, "relu"), keras.layers.Dense(3)

    def call(self, x: Any) -> Any:
        return self.second(self.first(x))


class OwnStep(keras.Model):
    """A graph of layers, and a step of its own."""

    def train_step(self, batch: Any) -> dict[str, Any]:
        x, y = batch
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((self(x, training=True) - y) ** 2)
        gradients = tape.gradient(loss, self.trainable_variables)
        self.optimizer.apply(gradients, self.trainable_variables)
        return {"loss": loss}


def of_a_class(distributed: bool) -> Any:
    seen = []
    for layouts in ({}, PAIR):
        keras.utils.set_random_seed(3)
        model = InPython()
        if layouts:
            plain = mlp()
            model = OwnStep(plain.inputs, plain.outputs)
        model.build((None, 6))
        model.compile(keras.optimizers.Adam(0.01), "mse")
        more = {"mesh": tnt.Mesh(model=2), "layouts": layouts}
        ours = tnt.Model(model, **more) if distributed else model
        x, y = numbers(12, 6), numbers(12, 3, seed=9)
        seen += ours.fit(x, y, batch_size=6, shuffle=False, verbose=0).history["loss"]
        seen += [*model.get_weights(), ours.predict(x, verbose=0)]
    return [np.asarray(each) for each in seen]


@pytest.mark.parametrize("function", [frozen_then_trained, played, of_a_class])
def test_between_calls_a_model_is_whole(ranks, function):
    (alone,) = ranks.run(1, function, False)
    for ours in ranks.run(2, function, True):
        close(ours, alone)
