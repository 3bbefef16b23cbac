"""Ranks say where the time of their steps goes, and what is slow on purpose is named."""

from __future__ import annotations

import time
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import tnt_notebook as tnt
from tests.telemetry.kept_runs import keep
from tnt_notebook import telemetry
from tnt_notebook.dashboard.card.picture import card_html
from tnt_notebook.dashboard.figures.summary import summary
from tnt_notebook.dashboard.figures.wording import clock, rate, short_time
from tnt_notebook.dashboard.reports.trace import Trace
from tnt_notebook.magics.trace import HEADERS, cells_of
from tnt_notebook.telemetry import Frame, archive
from tnt_notebook.telemetry.breakdown import Breakdown, mean
from tnt_notebook.telemetry.evidence import evidence_of
from tnt_notebook.telemetry.kept_ribbon import ribbon_of

#: As long as what else holds a rank up on a busy machine, or longer.
DELAY_S = 0.1
STEPS, EPOCHS = 12, 2


def after_a_while(x: tf.Tensor, delay_s: float = DELAY_S) -> tf.Tensor:
    """The same: the time that it takes is what the tests look for."""

    def wait() -> np.int64:
        time.sleep(delay_s)  # not for something to happen: this is the slow work
        return np.int64(0)

    with tf.control_dependencies([tf.numpy_function(wait, [], tf.int64)]):
        return tf.identity(x)


class Slow(keras.layers.Layer):
    """Passes on what it is given, after a while on one rank."""

    def __init__(self, rank: int, **options: Any) -> None:
        super().__init__(**options)
        self.rank = rank

    def call(self, x: Any) -> Any:
        return after_a_while(x, DELAY_S if tnt.world().rank == self.rank else 0)


class SlowCallback(keras.callbacks.Callback):
    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        time.sleep(DELAY_S)


def fitted(slow_rank: int, slow: str, stages: int) -> tuple[list[Frame], float]:
    """The frames of rank 0, and seconds that the fit took; `slow` is a layer, input or callback."""
    keras.utils.set_random_seed(1)
    inputs = keras.Input((8,))
    x = Slow(slow_rank, name="slow")(inputs)
    x = keras.layers.Dense(8, name="first")(x)
    model = keras.Model(inputs, keras.layers.Dense(1, name="last")(x))
    model.compile("sgd", "mse")
    batches = tf.data.Dataset.from_tensors((tf.ones((16, 8)), tf.ones((16, 1))))
    data = batches.repeat(STEPS)
    if slow == "input":
        data = data.map(lambda x, y: (after_a_while(x), y))
    callbacks = [SlowCallback()] if slow == "callback" else []
    pipeline = tnt.Pipeline(stages, 2, cut_at=["last"]) if stages else None
    frames: list[Frame] = []
    with tnt.distributed(report=frames.append, pipeline=pipeline):
        begin = time.perf_counter()
        model.fit(
            data, epochs=EPOCHS, verbose=0, callbacks=callbacks, validation_data=batches.repeat(2)
        )
        took = time.perf_counter() - begin
    return frames, took


@pytest.mark.parametrize(
    ("slow_rank", "slow", "stages", "sentence"),
    [
        (-1, "input", 0, "Ranks wait for input during"),
        (1, "layer", 0, "Rank 0 waits during"),
        (0, "layer", 2, "Rank 0 has"),
        (-1, "callback", 0, "Rank 1 waits during"),
    ],
)
def test_what_is_slow_is_named(ranks, slow_rank, slow, stages, sentence, kept_runs):
    (frames, took), *_ = ranks.run(2, fitted, slow_rank, slow, stages)
    of_ranks = telemetry.breakdowns(frames)
    assert len(of_ranks) == 2
    assert telemetry.limit_of(frames).startswith(sentence), of_ranks
    # The next batch is being read while a step does the rest, and between steps.
    least = DELAY_S * (0.5 if slow == "input" else 0.9)
    assert all(least < seconds for seconds in slow_s(seen(frames), slow, slow_rank)), frames
    assert all(seconds < took / 23 for seconds in slow_s(of_ranks, slow, slow_rank)), of_ranks
    # All ranks take the same steps; what one does between two of them is the others' waiting.
    assert 0.5 < of_ranks[0].step / of_ranks[1].step < 2
    if slow == "layer" and not stages:
        assert seen(frames)[0].skew > least
    assert all(b.exchange < least for b in of_ranks)
    numbers_agree(frames)


def seen(frames: list[Frame]) -> list[Breakdown]:
    """The mean of the samples on each rank, as long as they were: on a busy machine longer than
    the median step."""
    return [mean(of_rank) for of_rank in zip(*evidence_of(frames).samples, strict=True)]


def slow_s(of_ranks: list[Breakdown], slow: str, rank: int) -> list[float]:
    """Seconds of what is slow on purpose, and of waiting for it."""
    if slow == "callback":
        return [of_ranks[0].other, of_ranks[1].skew]
    return [of_ranks[rank].work] if slow == "layer" else [b.step for b in of_ranks]


def fitted_late() -> list[Frame]:
    """Both ranks work for long, while the gradients of the step before travel."""
    inputs = keras.Input((8,))
    slow = keras.layers.Lambda(after_a_while, output_shape=(8,))(inputs)
    model = keras.Model(inputs, keras.layers.Dense(1)(slow))
    model.compile("sgd", "mse")
    frames: list[Frame] = []
    with tnt.distributed(report=frames.append, exchange="late"):
        model.fit(np.ones((96, 8)), np.ones((96, 1)), batch_size=8, verbose=0)
    return frames


def test_what_a_rank_does_while_late_gradients_travel_is_work(ranks):
    frames = ranks.run(2, fitted_late)[0]
    of_ranks = telemetry.breakdowns(frames)
    assert all(b.work > 0.9 * DELAY_S > b.exchange + b.other for b in of_ranks), of_ranks
    assert telemetry.limit_of(frames) == ""


@pytest.fixture
def kept_runs(tmp_path, monkeypatch):
    monkeypatch.setenv("TNT_RUNS_DIR", str(tmp_path))


def numbers_agree(frames: list[Frame]) -> None:
    """Whatever shows a run, the same number has the same name and the same value."""
    fit = telemetry.main_run(frames)
    step_s, duration = fit[-1]["step_s"], fit[-1]["elapsed"]
    spent = fit[-1]["spent"]
    training_s = spent["steps_s"] + spent["first_steps_s"]
    training, step = rate(16 * STEPS * EPOCHS / training_s), short_time(step_s)
    whole = rate(16 * STEPS * EPOCHS / duration)

    text = summary("a model", 2, frames, "finished")
    assert "samples/s while training" in text and training in text.split()
    assert f"over the whole fit {whole} samples/s" in text
    assert f"median step {step}: " in text and f"finished in {clock(duration)}" in text
    html = card_html("a model", frames, "finished", None, ribbon_of(frames))
    assert f"{training} samples/s while training · median step {step}" in html
    assert f"over the whole fit {whole} samples/s" in html
    assert html.count(step) == 2 and f"Median step {step} " in html
    assert f"took {clock(duration)}" in html

    keep(frames, "a model")
    (run,) = archive.listed()
    cells = dict(zip(HEADERS, cells_of(run), strict=True))
    assert cells["samples/s while training"] == training and cells["took"] == clock(duration)
    trace = Trace.open(run.folder)
    assert trace.samples_per_s == pytest.approx(16 * STEPS * EPOCHS / training_s, rel=1e-5)
    assert trace.median_step["seconds"] == step_s and trace.median_step["which"] == "median"
    titles = [note.text for note in trace.compare(trace).layout.annotations]
    assert titles[0].count(f"{training} while training") == 2

    assert (spent["first_steps"], spent["steps"]) == (EPOCHS, (STEPS - 1) * EPOCHS)
    # At least half of the steps take as long as the median one; how long the others take is open.
    assert spent["steps_s"] > 0.4 * spent["steps"] * step_s
    beside = duration - spent["steps_s"] - spent["first_steps_s"]
    words = " ".join(text.split())
    outside = f"outside of steps (validation, callbacks, start) {short_time(beside)}"
    assert 0 < beside < duration and outside in words


def test_one_rank_alone_has_a_breakdown_too(ranks):
    ((frames, _),) = ranks.run(1, fitted, 0, "layer", 0)
    (alone,) = telemetry.breakdowns(frames)
    assert alone.exchange == alone.skew == alone.wait == 0
    assert 0 < alone.work < alone.step
    assert seen(frames)[0].work > DELAY_S * 0.9
