"""A loss that becomes NaN ends training, unless it is to go on, and is said in any case."""

from __future__ import annotations

import math
from typing import Any

import keras
import numpy as np
import pytest

import tnt_notebook as tnt
from tnt_notebook.parallel.observe.divergence import Divergence
from tnt_notebook.plan.fit_options import FitOptions

EPOCHS, STEPS, BAD = 400, 5, 3


def fitted(options: dict[str, Any]) -> dict[str, Any]:
    """A fit whose third batch holds NaN; what became of it on this rank."""
    keras.utils.set_random_seed(1)
    layers = [keras.layers.Dense(4, name=f"dense_{number}") for number in range(2)]
    model = keras.Sequential([keras.Input((4,)), *layers])
    model.compile("sgd", "mse")
    x = np.ones((8 * STEPS, 4), "float32")
    x[8 * (BAD - 1) + 5] = np.nan
    options = {**options}
    if "stages" in options:
        options["pipeline"] = tnt.Pipeline(options.pop("stages"), 2, cut_at=["dense_1"])
    frames: list[Any] = []
    with tnt.distributed(report=frames.append, **options) as session:
        model.fit(x, x, batch_size=8, epochs=EPOCHS, shuffle=False, verbose=0)
        if model.stop_training:  # a fit that diverged is over; what comes after it is not
            model.train_on_batch(x[:8], x[:8])
    (run, *_) = session.runs
    return {"run": (run.stopped, run.diverged, run.history["loss"]), "frames": frames}


@pytest.mark.parametrize(
    ("options", "since"),
    [
        ({}, f"since step {BAD} of epoch 1: "),
        ({"stages": 2}, f"since step {BAD} of epoch 1: "),
        ({"exchange": "local:every=4"}, " or some steps before: "),
        ({"exchange": "late"}, " or some steps before: "),
    ],
)
def test_a_loss_that_is_nan_ends_training(ranks, options, since):
    told = ranks.run(2, fitted, options)
    stopped, words, losses = told[0]["run"]
    assert stopped and len(losses) < EPOCHS and math.isnan(losses[-1])
    assert words.startswith("loss is NaN since step ") and since in words
    assert "Training was stopped; --on-nan go-on" in words
    assert told[0]["frames"][-1]["diverged"] == words
    assert told[0]["frames"][-1]["state"] == "stopped"
    assert [len(one["run"][2]) for one in told] == [len(losses)] * 2  # after the same step


def test_it_goes_on_where_it_is_to_and_is_said_all_the_same(ranks):
    (stopped, words, losses), _ = (one["run"] for one in ranks.run(2, fitted, {"on_nan": "go-on"}))
    assert not stopped and len(losses) == EPOCHS and all(map(math.isnan, losses))
    assert words.startswith(f"loss is NaN since step {BAD} of epoch 1") and "stopped" not in words


def test_infinite_losses_and_other_logs_end_nothing():
    seen = Divergence()
    for step in range(1, 4):
        seen.step(1, step, {"loss": math.inf, "accuracy": math.nan, "val_loss": 1.0})
    seen.look()
    assert seen.since is None and seen.words(True) == ""
    for step in range(1, 4):
        seen.step(2, step, {"loss": 0.0, "d_loss": math.nan if step > 1 else 0.5})
    seen.look()
    assert (seen.since, seen.loss) == ((2, 2), "d_loss")
    assert not seen.is_final


def test_it_is_final_where_weights_are_not_finite():
    weight = keras.Variable([1.0, 2.0])
    seen = Divergence(weights=lambda: [weight])
    seen.step(1, 1, {"loss": math.nan})
    assert seen.since == (1, 1) and not seen.is_final
    weight.assign([1.0, math.inf])
    seen.step(1, 2, {"loss": math.nan})
    seen.look(ends_epoch=True)
    assert seen.is_final


def test_what_is_to_happen_then_is_one_of_two():
    with pytest.raises(ValueError, match="on_nan is 'stop' or 'go-on', not 'raise'"):
        FitOptions(on_nan="raise")  # type: ignore[arg-type]  # as who has no types may pass it
