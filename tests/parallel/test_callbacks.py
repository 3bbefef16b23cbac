"""Callbacks do what they do on one process: the same decisions, and files once."""

from __future__ import annotations

import collections
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import tnt_notebook as tnt
from tests.parallel.models import classification, mlp
from tests.parallel.outcome import close, compare, same_bits, train
from tnt_notebook import comm

FIT = {"batch_size": 16, "epochs": 4, "verbose": 0}


class Recorder(keras.callbacks.Callback):
    """Writes down what it sees; on_epoch_end has an effect on training."""

    def __init__(self, path: str) -> None:
        super().__init__()
        self.path = path

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        with open(self.path, "a") as file:
            file.write(f"{batch} {logs['loss']:.5f}\n")

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self.model.optimizer.learning_rate = 0.1 / (epoch + 1)
        logs["seen"] = float(epoch)


KINDS: dict[str, Callable[[str], keras.callbacks.Callback]] = {
    "EarlyStopping": lambda _: keras.callbacks.EarlyStopping(
        "accuracy", patience=0, restore_best_weights=True, min_delta=0.5
    ),
    "ReduceLROnPlateau": lambda _: keras.callbacks.ReduceLROnPlateau(
        "loss", 0.5, patience=1, min_delta=10
    ),
    "LearningRateScheduler": lambda _: keras.callbacks.LearningRateScheduler(
        lambda epoch, rate: rate * 0.5
    ),
    "SwapEMAWeights": lambda _: keras.callbacks.SwapEMAWeights(),
    "SwapEMAWeights of epochs": lambda _: keras.callbacks.SwapEMAWeights(swap_on_epoch=True),
    "TerminateOnNaN": lambda _: keras.callbacks.TerminateOnNaN(),
    "LambdaCallback": lambda _: keras.callbacks.LambdaCallback(
        on_train_batch_begin=lambda batch, logs: None,
        on_epoch_end=lambda epoch, logs: logs.update(twice=2 * logs["loss"]),
    ),
    "a user's own": Recorder,
}


def run_callback(kind: str, folder: str, distributed: bool) -> Any:
    x, y = classification()
    if kind == "TerminateOnNaN":
        x = np.where(np.arange(len(x))[:, None] == 40, np.nan, x)
    ema = {"use_ema": True, "ema_momentum": 0.9} if kind.startswith("SwapEMAWeights") else {}
    fit = {"x": x, "y": y, "batch_size": 16, "epochs": 4, "validation_data": (x[:20], y[:20])}
    fit["callbacks"] = [KINDS[kind](f"{folder}/{distributed}.txt")]
    return train(lambda: mlp(keras.optimizers.SGD(0.1, momentum=0.9, **ema)), fit, distributed)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", KINDS)
def test_callbacks_decide_as_on_one_process(ranks, tmp_path, kind):
    compare(ranks, 3, run_callback, kind, str(tmp_path))
    if kind == "a user's own":
        alone, together = (np.loadtxt(tmp_path / f"{known}.txt") for known in (False, True))
        assert len(alone) == 16
        np.testing.assert_allclose(together, alone, rtol=1e-4)


def write_files(folder: str) -> list[str]:
    keras.utils.set_random_seed(1)
    x, y = classification()
    model = tnt.Model(mlp())
    callbacks = [
        keras.callbacks.ModelCheckpoint(f"{folder}/e{{epoch}}-{{loss:.3f}}.keras"),
        keras.callbacks.CSVLogger(f"{folder}/log.csv"),
        keras.callbacks.TensorBoard(f"{folder}/board"),
    ]
    model.fit(x, y, callbacks=callbacks, validation_split=0.3, **FIT)
    loaded = keras.models.load_model(sorted(Path(folder).glob("e4*.keras"))[0])
    np.testing.assert_array_equal(loaded.get_weights()[0], model.get_weights()[0])


@pytest.mark.core
def test_files_are_written_once(ranks, tmp_path):
    ranks.run(3, write_files, str(tmp_path))
    assert len(list(tmp_path.glob("*.keras"))) == 4
    assert len((tmp_path / "log.csv").read_text().splitlines()) == 5
    kinds = collections.Counter(p.parent.name for p in tmp_path.glob("board/*/events*"))
    assert kinds == {"train": 1, "validation": 1}


class Crash(keras.callbacks.Callback):
    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        if epoch == 2:
            raise KeyboardInterrupt


def back_up(folder: str) -> tuple[list[np.ndarray], list[int]]:
    x, y = classification()
    keras.utils.set_random_seed(1)
    for crash in (True, False):
        model = tnt.Model(mlp())
        callbacks = [keras.callbacks.BackupAndRestore(folder)] + [Crash()] * crash
        try:
            history = model.fit(x, y, callbacks=callbacks, shuffle=False, **FIT)
        except BaseException as error:
            # As a cell on an engine: free the others, then begin anew.
            if not getattr(error, "peers_know", False):
                comm.abort(f"rank {comm.rank()}: {type(error).__name__}")
            comm.world().recover()
    return model.get_weights(), history.epoch


@pytest.mark.core
def test_backup_and_restore_goes_on_where_a_run_was_cut_off(ranks, tmp_path):
    for name in ("alone", "together"):
        (tmp_path / name).mkdir()
    ((plain, plain_epochs),) = ranks.run(1, back_up, str(tmp_path / "alone"))
    for weights, epochs in ranks.run(3, back_up, str(tmp_path / "together")):
        assert epochs == plain_epochs == [2, 3]
        close(weights, plain, 1e-4, 1e-5)


class Uses(keras.callbacks.Callback):
    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        x, y = classification()
        logs["own"] = self.model.evaluate(x, y, verbose=0, return_dict=True)["loss"]
        logs["mean"] = float(self.model.predict(x, verbose=0).mean())


def use_the_model(distributed: bool) -> Any:
    x, y = classification()
    fit = {"x": x, "y": y, "batch_size": 16, "epochs": 2, "callbacks": [Uses()]}
    return train(mlp, fit, distributed)


def test_a_callback_may_evaluate_and_predict(ranks):
    compare(ranks, 3, use_the_model)


class StopsByClock(keras.callbacks.Callback):
    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        if time.monotonic() - self.began > 0.3:
            self.model.stop_training = True

    def on_train_begin(self, logs: Any = None) -> None:
        self.began = time.monotonic()


def stop_by_clock() -> int:
    x, y = classification()
    model = tnt.Model(mlp())
    model.fit(x, y, batch_size=16, epochs=100_000, verbose=0, callbacks=[StopsByClock()])
    return int(model.optimizer.iterations)


def test_a_decision_by_the_clock_is_made_once_for_all_ranks(ranks):
    steps = ranks.run(4, stop_by_clock)
    assert len(set(steps)) == 1


def annealed(distributed: bool) -> Any:
    """A weight of a part of the loss that a callback raises, and one that draws, as the examples of
    generative models do."""
    keras.utils.set_random_seed(2)
    weight, plain = keras.Variable(0.0, trainable=False), tf.Variable(1.0, trainable=False)

    def loss(y: Any, p: Any) -> Any:
        return keras.losses.mean_squared_error(y, p) * plain + weight * keras.ops.mean(p**2, -1)

    class Anneals(keras.callbacks.Callback):
        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            weight.assign(0.5 * (epoch + 1))
            np.random.rand(3), tf.random.normal((2,))

        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            plain.assign(1.0 / (batch + 1))

    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3)])
    model.compile(keras.optimizers.SGD(0.1), loss)
    draw = np.random.default_rng(0)
    x, y = draw.normal(size=(20, 4)).astype("float32"), draw.normal(size=(20, 3)).astype("float32")
    ours = tnt.Model(model) if distributed else model
    ours.fit(x, y, batch_size=8, epochs=3, shuffle=False, verbose=0, callbacks=[Anneals()])
    return model.get_weights(), [float(np.random.rand()), float(tf.random.uniform(()))]


def test_what_a_callback_assigns_or_draws_is_so_on_all_ranks(ranks):
    ((alone, _),) = ranks.run(1, annealed, False)
    (first, drawn), (second, also) = ranks.run(2, annealed, True)
    close(first, alone)
    same_bits(first, second)
    assert drawn == also
