"""What becomes of a model on a mesh between the calls of its methods."""

from typing import Any

import keras
import numpy as np
import pytest

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


@pytest.mark.parametrize("function", [frozen_then_trained, played])
def test_between_calls_a_model_is_whole(ranks, function):
    (alone,) = ranks.run(1, function, False)
    for ours in ranks.run(2, function, True):
        close(ours, alone)
