"""Cells that keep checkpoints, are broken off at a step, and go on."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from keras import layers

import tnt_notebook as tnt
from tests.parallel.models import SAMPLES, chain, classification, from_logits, mlp, rng
from tests.parallel.outcome import close, same_bits
from tests.support.waiting import eventually
from tnt_notebook.comm import stop
from tnt_notebook.errors import PeerError
from tnt_notebook.parallel.consistency.model_state import state_of

BATCH = 10  # five batches an epoch


class BrokenOffError(Exception):
    """What ends a cell."""


class BreakOff(keras.callbacks.Callback):
    """Asks for a checkpoint after a step, and ends the cell when that is on disk.

    Args:
        at: step of the run, from 1; the step after it still runs.
        checkpoints: how many it asks for, each when the one before is on disk.
    """

    def __init__(self, folder: str | None, at: int, checkpoints: int = 1) -> None:
        super().__init__()
        self._folder, self._at, self._checkpoints, self.count = folder, at, checkpoints, 0

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        self.count += 1
        written, since = divmod(self.count - self._at, 3)
        if since == 0 and written >= 0:
            stop.checkpoint.set()
        if since == 2 and written >= 0:
            if self._folder is not None:
                eventually(lambda: self._on_disk() > written)
            if written + 1 == self._checkpoints:
                raise BrokenOffError

    def _on_disk(self) -> int:
        assert self._folder is not None
        return sum(name.startswith("step-") for name in os.listdir(self._folder))


@dataclass
class Result:
    """All that a cell came to."""

    state: list[np.ndarray]
    histories: list[dict[str, list[float]]]
    epochs: list[list[int]]
    evaluation: dict[str, float]


def assert_equal(ours: Result, theirs: Result) -> None:
    """Bit for bit."""
    assert ours.histories == theirs.histories
    assert ours.epochs == theirs.epochs
    assert ours.evaluation == theirs.evaluation
    same_bits(ours.state, theirs.state)


def assert_close(ours: Result, theirs: Result) -> None:
    """Up to the order of floating-point sums."""
    assert ours.epochs == theirs.epochs
    close(ours.state, theirs.state)
    close(ours.histories, theirs.histories)


class Noisy(keras.utils.PyDataset):
    """Draws from ``numpy.random`` for the order of an epoch, and for its samples."""

    def __init__(self) -> None:
        super().__init__()
        self.x, self.y = classification()
        self.order = np.arange(SAMPLES)

    def __len__(self) -> int:
        return SAMPLES // BATCH

    def __getitem__(self, i: int):
        chosen = self.order[i * BATCH : (i + 1) * BATCH]
        return self.x[chosen] + np.random.normal(size=(BATCH, 8)), self.y[chosen]

    def on_epoch_end(self) -> None:
        np.random.shuffle(self.order)


def generate():
    x, y = classification()
    numbers = rng(3)
    while True:
        chosen = numbers.integers(0, SAMPLES, BATCH)
        yield x[chosen], y[chosen]


def twice(x: tf.Tensor, y: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    return 2 * x, y


def inputs(kind: str) -> dict[str, Any]:
    """Arguments of fit, for epochs of five steps."""
    x, y = classification()
    samples = tf.data.Dataset.from_tensor_slices((x, y))
    shuffled = samples.shuffle(SAMPLES).batch(BATCH)
    return {
        "arrays": {"x": x, "y": y, "batch_size": BATCH, "validation_data": (x[:17], y[:17])},
        "tf.data": {"x": shuffled, "validation_data": shuffled, "validation_steps": 2},
        "tf.data repeated": {"x": shuffled.repeat(), "steps_per_epoch": 5},
        "tf.data over epochs": {
            "x": samples.shuffle(SAMPLES).map(twice, 2).batch(3),
            "steps_per_epoch": 5,
        },
        "reader": {"x": tnt.data.arrays(x, y, shuffle=True).batch(BATCH)},
        "tf.data of unknown length": {"x": shuffled.filter(lambda x, y: True)},
        "PyDataset": {"x": Noisy(), "shuffle": True, "validation_data": Noisy()},
        "generator": {"x": generate(), "steps_per_epoch": 5},
    }[kind]


def model() -> keras.Model:
    hidden = [layers.Dense(16, "relu"), layers.BatchNormalization(), layers.Dropout(0.3)]
    adam = keras.optimizers.Adam(0.05)
    return chain(keras.Input((8,)), *hidden, layers.Dense(3, "softmax"), optimizer=adam)


def linear() -> keras.Model:
    """Quickly traced."""
    return chain(keras.Input((8,)), layers.Dense(3), loss=from_logits(), metrics=None)


Cell = Callable[[list[keras.callbacks.Callback]], Result]


def run(
    cell: Cell,
    folder: str | None,
    break_at: int | None = None,
    stages: int = 0,
    exchange: str | None = None,
    mesh: tnt.Mesh | None = None,
    checkpoints: int = 1,
    **options: Any,
) -> Result | str:
    """Runs a cell, as in a new process.

    Args:
        folder: of checkpoints; ``None``: it keeps none.
        break_at, checkpoints: see `BreakOff`.
        stages: of a pipeline; 0: without.
        exchange: see ``tnt.Model``.
        mesh: along whose axis ``model`` dense layers are cut by columns.
        options: of ``tnt.Checkpoint``.

    Returns:
        What it came to; ``"broken off"`` if it was.
    """
    keras.utils.clear_session(free_memory=False)
    keras.utils.set_random_seed(int.from_bytes(os.urandom(3)))  # the checkpoint's has to win
    checkpoint = None
    if folder is None and not options:
        keras.utils.set_random_seed(1)
    else:
        options.setdefault("every_steps", 10**6)
        options.setdefault("run", cell.__name__)
        checkpoint = tnt.Checkpoint(folder, **options)
        if not (folder and Path(folder, "run.json").exists()) and options.get("resume") is not True:
            keras.utils.set_random_seed(1)
    callbacks = [] if break_at is None else [BreakOff(folder, break_at, checkpoints)]
    try:
        pipeline = tnt.Pipeline(stages, micro_batches=2) if stages else None
        layouts = {"dense.*": tnt.Split(columns="model")} if mesh else None
        with tnt.distributed(
            checkpoint=checkpoint, pipeline=pipeline, exchange=exchange, mesh=mesh, layouts=layouts
        ):
            return cell(callbacks)
    except BrokenOffError:
        return "broken off"
    except PeerError as error:
        if "BrokenOffError" not in str(error):
            raise
        return "broken off"


def of_input(kind: str) -> Cell:
    """A cell whose weights tell which batches a model has seen."""

    def cell(callbacks: list[keras.callbacks.Callback]) -> Result:
        trained = linear()
        history = trained.fit(**inputs(kind), epochs=4, verbose=0, callbacks=callbacks)
        return result(trained, [history])

    cell.__name__ = kind
    return cell


def with_everything(callbacks: list[keras.callbacks.Callback]) -> Result:
    """A cell that a lot belongs to; its callbacks end it after three epochs, if they remember."""
    trained = model()
    own = [
        keras.callbacks.EarlyStopping("loss", min_delta=9, patience=2, restore_best_weights=True),
        keras.callbacks.ReduceLROnPlateau("loss", min_delta=9, patience=1, factor=0.3),
    ]
    history = trained.fit(**inputs("arrays"), epochs=9, verbose=0, callbacks=[*own, *callbacks])
    x, y = classification()
    evaluation = trained.evaluate(x, y, batch_size=16, return_dict=True, verbose=0)
    return result(trained, [history], evaluation)


def plain(callbacks: list[keras.callbacks.Callback]) -> Result:
    """A cell that comes to the same on any number of ranks, up to the order of sums."""
    trained = mlp(keras.optimizers.Adam(0.01))
    history = trained.fit(**inputs("arrays"), epochs=3, verbose=0, callbacks=callbacks)
    return result(trained, [history])


def lazy(callbacks: list[keras.callbacks.Callback]) -> Result:
    """Two fits of a model that is never whole on a mesh: of its weights predictions tell."""
    with tnt.lazy():
        trained = mlp(keras.optimizers.Adam(0.01))
    arguments = inputs("arrays")
    fits = [trained.fit(**arguments, epochs=2, verbose=0, callbacks=callbacks) for _ in range(2)]
    predictions = trained.predict(arguments["x"], verbose=0)
    return Result([predictions], [dict(f.history) for f in fits], [f.epoch for f in fits], {})


def two_fits(callbacks: list[keras.callbacks.Callback]) -> Result:
    """A cell that trains the head of a model first, and then all of it."""
    trained = model()
    body = trained.layers[0]
    body.trainable = False
    x, y = classification()
    trained.compile("sgd", "sparse_categorical_crossentropy", metrics=["accuracy"])
    shuffled = tf.data.Dataset.from_tensor_slices((x, y)).shuffle(SAMPLES).batch(BATCH)
    first = trained.fit(shuffled, epochs=2, verbose=0, callbacks=callbacks)
    between = trained.evaluate(x, y, batch_size=16, return_dict=True, verbose=0)
    body.trainable = True
    trained.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"])
    second = trained.fit(shuffled, epochs=2, verbose=0, callbacks=callbacks)
    return result(trained, [first, second], between)


def result(
    trained: keras.Model,
    histories: list[keras.callbacks.History],
    evaluation: dict[str, float] | None = None,
) -> Result:
    return Result(
        [np.asarray(v.value) for v in state_of(trained)],
        [dict(h.history) for h in histories],
        [h.epoch for h in histories],
        evaluation or {},
    )
