"""Ranks say where the time of their steps goes, and what is slow on purpose is named."""

from __future__ import annotations

import time
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import tnt_notebook as tnt
from tnt_notebook import telemetry
from tnt_notebook.telemetry import Breakdown, Frame
from tnt_notebook.telemetry.limit import limit

DELAY_S = 0.03


def after_a_while(x: tf.Tensor) -> tf.Tensor:
    """The same: the time that it takes is what the tests look for."""

    def wait(values: np.ndarray) -> np.ndarray:
        time.sleep(DELAY_S)  # not for something to happen: this is the slow work
        return values

    return tf.ensure_shape(tf.numpy_function(wait, [x], x.dtype), x.shape)


class Slow(keras.layers.Layer):
    """Passes on what it is given, after a while on one rank."""

    def __init__(self, rank: int, **options: Any) -> None:
        super().__init__(**options)
        self.rank = rank

    def call(self, x: Any) -> Any:
        if tnt.world().rank != self.rank:
            return tf.identity(x)
        return after_a_while(x)


def fitted(slow_rank: int, slow_input: bool, stages: int) -> tuple[list[Breakdown], int, float]:
    """Of rank 0: where its frames say that time went."""
    keras.utils.set_random_seed(1)
    inputs = keras.Input((8,))
    x = Slow(slow_rank, name="slow")(inputs)
    x = keras.layers.Dense(8, name="first")(x)
    model = keras.Model(inputs, keras.layers.Dense(1, name="last")(x))
    model.compile("sgd", "mse")
    data = tf.data.Dataset.from_tensors((tf.ones((16, 8)), tf.ones((16, 1)))).repeat(12)
    if slow_input:
        data = data.map(lambda x, y: (after_a_while(x), y))
    pipeline = tnt.Pipeline(stages, 2, cut_at=["last"]) if stages else None
    frames: list[Frame] = []
    with tnt.distributed(report=frames.append, pipeline=pipeline):
        begin = time.perf_counter()
        model.fit(data, epochs=2, verbose=0)
        took = time.perf_counter() - begin
    if not frames:
        return [], 1, took
    return telemetry.breakdowns(frames), frames[-1]["sharing"], took


@pytest.mark.parametrize(
    ("slow_rank", "slow_input", "stages", "sentence"),
    [
        (-1, True, 0, "Ranks wait for input during"),
        (1, False, 0, "Rank 1 works"),
        (0, False, 2, "Rank 0 has"),
    ],
)
def test_what_is_slow_is_named(ranks, slow_rank, slow_input, stages, sentence):
    (of_ranks, sharing, took), *_ = ranks.run(2, fitted, slow_rank, slow_input, stages)
    assert len(of_ranks) == 2
    assert limit(of_ranks, sharing).startswith(sentence), of_ranks
    # The next batch is being read while a step does the rest, and between steps.
    slow = [b.step for b in of_ranks] if slow_input else [of_ranks[slow_rank].work]
    least = DELAY_S * (0.5 if slow_input else 0.9)
    assert all(least < seconds < took / 23 for seconds in slow), (of_ranks, took)
    # All ranks take the same steps; what one does between two of them is the others' waiting.
    assert 0.5 < of_ranks[0].step / of_ranks[1].step < 2


def test_one_rank_alone_has_a_breakdown_too(ranks):
    (((alone,), sharing, _),) = ranks.run(1, fitted, 0, False, 0)
    assert sharing == 1
    assert alone.exchange == alone.wait == 0
    assert DELAY_S * 0.9 < alone.work < alone.step
