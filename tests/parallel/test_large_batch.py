"""Large batches: rates, the warm-up, LARS."""

import keras
import numpy as np
import pytest
from keras import layers

import tnt_notebook as tnt
from tests.parallel.models import chain, classification
from tests.parallel.outcome import close
from tnt_notebook.keras import large_batch


def test_rates_grow_with_the_batch():
    assert large_batch.scaled_rate(0.1, 8192) == pytest.approx(3.2)
    assert large_batch.scaled_rate(0.001, 4096, base=64, rule="sqrt") == pytest.approx(0.008)
    for bad in ({"batch_size": 0}, {"batch_size": 8, "rule": "cubic"}):
        with pytest.raises(ValueError, match="not"):
            large_batch.scaled_rate(0.1, **bad)


def test_a_warm_up_goes_on_with_its_schedule_and_can_be_saved():
    halves = keras.optimizers.schedules.ExponentialDecay(0.8, 2, 0.5, staircase=True)
    warm = large_batch.WarmUp(halves, steps=4, start=0.2)
    again = keras.saving.deserialize_keras_object(keras.saving.serialize_keras_object(warm))
    expected = [0.8 * part for part in (0.4, 0.6, 0.8, 1.0, 1.0, 1.0, 0.5, 0.5, 0.25)]
    for schedule in (warm, again):
        assert [float(schedule(step)) for step in range(9)] == pytest.approx(expected)
    assert float(large_batch.WarmUp(0.1, 10)(99)) == pytest.approx(0.1)
    with pytest.raises(ValueError, match="1 step at least"):
        large_batch.WarmUp(0.1, 0)


def lars(weights, gradients, rate, momentum, l2, trust):
    """Algorithm 1 of the paper, for one weight and its gradients in turn."""
    velocity = np.zeros_like(weights)
    for gradient in gradients:
        ratio = 1.0
        if weights.ndim > 1:
            norm, of_gradient = np.linalg.norm(weights), np.linalg.norm(gradient)
            ratio = trust * norm / (of_gradient + l2 * norm) if norm else 1.0
            gradient = gradient + l2 * weights
        velocity = momentum * velocity + rate * ratio * gradient
        weights = weights - velocity
    return weights


def test_lars_is_that_of_the_paper():
    chance = np.random.default_rng(1)
    about = {"momentum": 0.8, "l2": 1e-2, "trust": 0.02}
    for start in (chance.normal(size=(5, 3)), chance.normal(size=3), np.zeros((2, 2))):
        gradients = [chance.normal(size=start.shape) for _ in range(4)]
        variable, optimizer = keras.Variable(start, dtype="float32"), large_batch.Lars(0.5, **about)
        again = keras.optimizers.deserialize(keras.optimizers.serialize(optimizer))
        again.build([variable])
        for gradient in gradients:
            again.apply([keras.ops.convert_to_tensor(gradient, "float32")], [variable])
        close(np.asarray(variable), lars(start, gradients, 0.5, **about), 1e-5, 1e-6)
    with pytest.raises(ValueError, match="momentum is at least 0 and below 1"):
        large_batch.Lars(momentum=1)


def grown() -> tuple[list[np.ndarray], list[int], int, int]:
    keras.utils.set_random_seed(1)
    model = chain(keras.Input((8,)), layers.Dense(3, "softmax"), optimizer="sgd")
    x, y = classification()
    history = large_batch.fit_with_growing_batches(
        tnt.Model(model), x, y, batch_size=8, epochs=4, grow_at=[1, 2], verbose=0, shuffle=False
    )
    steps = sum(-(-len(x) // size) for size in (8, 16, 32, 32))
    assert len(history.history["loss"]) == len(history.epoch)
    return model.get_weights(), history.epoch, int(model.optimizer.iterations), steps


def test_batches_grow_at_their_epochs_the_same_on_two_ranks(ranks):
    ((alone, *told),) = ranks.run(1, grown)
    assert told[0] == [0, 1, 2, 3] and told[1] == told[2]
    for weights, *_ in ranks.run(2, grown):
        close(weights, alone, 2e-5, 2e-6)
    for bad in ({"grow_at": [2, 1]}, {"grow_at": [5]}, {"grow_at": [1], "factor": 1}):
        with pytest.raises(ValueError, match="not"):
            large_batch.fit_with_growing_batches(None, batch_size=8, epochs=4, **bad)


def trained() -> list[np.ndarray]:
    keras.utils.set_random_seed(1)
    optimizer = large_batch.Lars(large_batch.WarmUp(0.3, 3), l2=1e-3, trust=0.2)
    parts = [keras.Input((8,)), layers.Dense(16, "tanh"), layers.Dense(3, "softmax")]
    model = chain(*parts, optimizer=optimizer)
    history = tnt.Model(model).fit(*classification(), batch_size=16, epochs=8, verbose=0)
    assert history.history["loss"][-1] < history.history["loss"][0]
    return model.get_weights()


def test_lars_on_two_ranks_is_that_on_one(ranks):
    (alone,) = ranks.run(1, trained)
    for weights in ranks.run(2, trained):
        close(weights, alone, 2e-5, 2e-6)
