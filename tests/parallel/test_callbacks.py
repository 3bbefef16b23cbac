"""Callbacks do what they do on one process: the same decisions, and files once."""

from __future__ import annotations

import collections
import time
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest

import tnt_notebook as tnt
from tests.parallel.models import classification, mlp
from tests.parallel.outcome import assert_identical, assert_same, train
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


def callback(kind: str, folder: str) -> keras.callbacks.Callback:
    c = keras.callbacks
    return {
        "EarlyStopping": lambda: c.EarlyStopping(
            "accuracy", patience=0, restore_best_weights=True, min_delta=0.5
        ),
        "ReduceLROnPlateau": lambda: c.ReduceLROnPlateau("loss", 0.5, patience=1, min_delta=10),
        "LearningRateScheduler": lambda: c.LearningRateScheduler(lambda e, lr: lr * 0.5),
        "SwapEMAWeights": lambda: c.SwapEMAWeights(),
        "TerminateOnNaN": lambda: c.TerminateOnNaN(),
        "LambdaCallback": lambda: c.LambdaCallback(
            on_train_batch_begin=lambda batch, logs: None,
            on_epoch_end=lambda epoch, logs: logs.update(twice=2 * logs["loss"]),
        ),
        "a user's own": lambda: Recorder(f"{folder}/seen.txt"),
    }[kind]()


def run_callback(kind: str, folder: str, distributed: bool) -> Any:
    x, y = classification()
    if kind == "TerminateOnNaN":
        x = np.where(np.arange(len(x))[:, None] == 40, np.nan, x)
    ema = {"use_ema": True} if kind == "SwapEMAWeights" else {}
    fit = {"x": x, "y": y, "batch_size": 16, "epochs": 4, "callbacks": [callback(kind, folder)]}
    return train(lambda: mlp(keras.optimizers.SGD(0.1, momentum=0.9, **ema)), fit, distributed)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "kind",
    [
        "EarlyStopping",
        "ReduceLROnPlateau",
        "LearningRateScheduler",
        "SwapEMAWeights",
        "TerminateOnNaN",
        "LambdaCallback",
        "a user's own",
    ],
)
def test_callbacks_decide_as_on_one_process(ranks, tmp_path, kind):
    for name in ("alone", "together"):
        (tmp_path / name).mkdir()
    (plain,) = ranks.run(1, run_callback, kind, str(tmp_path / "alone"), False)
    outcomes = ranks.run(3, run_callback, kind, str(tmp_path / "together"), True)
    assert_same(outcomes[0], plain)
    assert_identical(outcomes)
    if kind == "a user's own":
        seen = [(tmp_path / name / "seen.txt").read_text() for name in ("alone", "together")]
        assert len(seen[0].splitlines()) == 16
        np.testing.assert_allclose(*(np.loadtxt(s.splitlines()) for s in seen), rtol=1e-4)


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
            comm.recover()
    return model.get_weights(), history.epoch


@pytest.mark.core
def test_backup_and_restore_goes_on_where_a_run_was_cut_off(ranks, tmp_path):
    for name in ("alone", "together"):
        (tmp_path / name).mkdir()
    ((plain, plain_epochs),) = ranks.run(1, back_up, str(tmp_path / "alone"))
    for weights, epochs in ranks.run(3, back_up, str(tmp_path / "together")):
        assert epochs == plain_epochs == [2, 3]
        for a, b in zip(weights, plain, strict=True):
            np.testing.assert_allclose(a, b, 1e-4, 1e-5)


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
    (plain,) = ranks.run(1, use_the_model, False)
    outcomes = ranks.run(3, use_the_model, True)
    assert_same(outcomes[0], plain)
    assert_identical(outcomes)


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
