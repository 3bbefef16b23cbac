"""Mixed precision in stages: what one process with the same policy computes, but for rounding."""

from typing import Any

import keras
import numpy as np
import pytest
from keras import layers

import tnt_notebook as tnt
from tests.parallel import outcome
from tests.parallel.outcome import Outcome, train
from tests.pipeline.models import numbers
from tests.pipeline.training import SAMPLES
from tests.support.cases import THOROUGH, latin

#: (rtol, atol) of what is computed with 11 and with 8 bits.
ROUNDING = {"mixed_float16": (5e-3, 2e-3), "mixed_bfloat16": (4e-2, 2e-2)}


def mlp() -> keras.Model:
    return keras.Sequential(
        [
            keras.Input((8,)),
            *(layers.Dense(16, "tanh", name=f"dense_{i}") for i in range(4)),
            layers.Dense(3, name="last"),
            layers.Activation("linear", dtype="float32", name="end"),
        ]
    )


def run(policy: str, cut_at: tuple[str, ...], target: float, schedule: str = "1f1b") -> Outcome:
    """Trains with a policy; without a cut, with Keras alone.

    Args:
        target: of the sample whose gradients are too large, if it is.
    """

    def compiled() -> keras.Model:
        before = keras.config.dtype_policy()
        keras.config.set_dtype_policy(policy)
        try:
            model = mlp()
            optimizer: Any = keras.optimizers.SGD(0.2, momentum=0.9)
            if policy == "mixed_float16":
                optimizer = keras.optimizers.LossScaleOptimizer(optimizer, 1024, 2)
            model.compile(optimizer, "mse", metrics=["mae"])
        finally:
            keras.config.set_dtype_policy(before)
        return model

    def pipeline(model: keras.Model) -> tnt.Pipeline:
        return tnt.Pipeline(len(cut_at) + 1, 3, schedule, cut_at=cut_at)

    x, y = numbers(SAMPLES, 8), numbers(SAMPLES, 3, seed=9)
    if target:
        y[11] = target
    fit = {"x": x, "y": y, "batch_size": 10, "epochs": 3, "shuffle": False}
    return train(compiled, fit, bool(cut_at), {"x": x, "y": y, "batch_size": 10}, pipeline)


def compare(ranks, n, policy, cut_at, target=0.0, schedule="1f1b"):
    (rtol, atol), alone = ROUNDING[policy], (policy, (), target)
    ours = policy, cut_at, target, schedule
    return outcome.compare(ranks, n, run, *ours, alone=alone, rtol=rtol, atol=atol)


@pytest.mark.parametrize(("policy", "schedule"), latin(ROUNDING, ["1f1b", "zb-h1"]))
def test_mixed_precision(ranks, policy, schedule):
    compare(ranks, 2, policy, ("dense_2",), schedule=schedule)


def test_mixed_precision_on_replicas(ranks):
    compare(ranks, 4, "mixed_float16", ("dense_2",))


@pytest.mark.parametrize("cut_at", [("dense_1", "dense_3"), *[("end",)] * THOROUGH], ids=str)
def test_a_step_that_overflows_is_skipped_on_all_ranks(ranks, cut_at):
    ours, plain = compare(ranks, len(cut_at) + 1, "mixed_float16", cut_at, 1e4)
    # The second batch of each epoch overflows, which halves the scale; two others double it.
    state = [float(v) for v in plain.optimizer if v.ndim == 0]
    assert 512.0 in state and 6.0 in state  # scale, steps that counted
    assert state == [float(v) for v in ours.optimizer if v.ndim == 0]
    assert all(np.isfinite(w).all() for w in ours.weights)
