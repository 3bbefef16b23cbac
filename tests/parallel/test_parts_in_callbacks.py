"""Callbacks use a model of which rank 0 has a part as they use a whole one; those that do not use
it leave it in parts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import tnt_notebook as tnt
from tests.parallel.outcome import close
from tnt_notebook.keras.lazy_variables import is_here

CUT = {"first": tnt.Split(columns="model"), "second": tnt.Split(rows="model")}
PARTS: dict[str, tuple[int, dict[str, Any]]] = {
    "blocks": (2, {"mesh": tnt.Mesh(model=2), "layouts": CUT}),
    "stages": (2, {"pipeline": tnt.Pipeline(2, micro_batches=2)}),
    "stages of blocks": (
        4,
        {
            "mesh": tnt.Mesh(stage=2, model=2),
            "layouts": CUT,
            "pipeline": tnt.Pipeline(2, micro_batches=2),
        },
    ),
    "state of optimizers": (2, {"exchange": "sharded:small_kb=0"}),
}  # fmt: skip


class User(keras.callbacks.Callback):
    """In each step it uses the model in another way, after one in which it looks at logs alone."""

    def __init__(self, x: np.ndarray, y: np.ndarray, file: Path) -> None:
        super().__init__()
        self.x, self.y, self.file = x, y, file
        self.seen: list[Any] = []
        self.parts: list[int] = []

    def on_train_begin(self, logs: Any = None) -> None:
        model = self.model
        self.traced = tf.function(lambda x: tf.reduce_sum(model(x)))
        self.seen.append(self.traced(self.x[:3]))
        self.kept = model.trainable_variables[0].value

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        model = self.model
        weights, state = model.trainable_variables, model.optimizer.variables
        if batch % 2 == 0:
            self.seen.append(logs["loss"])
            self.parts.append(sum(not is_here(v) for v in (*weights, *state)))
        elif batch == 1:
            self.seen.extend(model.get_weights())
        elif batch == 3:
            self.seen.append(model.predict(self.x[:4], verbose=0))
        elif batch == 5:
            self.seen.append(self.traced(self.x[:3]))
        elif batch == 7:
            weights[0].assign(weights[0] * 0.5)
        elif batch == 9:
            weights[-1].assign_add(weights[-1] + 0.5)
        elif batch == 11:
            self.seen.extend([self.kept.numpy(), *(v.numpy() for v in state)])
        elif batch == 13:
            self.seen.extend([tf.gather(weights[0].value, [2, 1]), self.kept.numpy()])

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self.seen.append(self.model.evaluate(self.x, self.y, verbose=0))
        self.model.save(self.file)


def used(name: str | None, folder: str) -> tuple[list[Any], list[float], list[int]]:
    """What the callback saw, losses, and how many variables were elsewhere in its idle steps."""
    keras.utils.set_random_seed(1)
    first = keras.layers.Dense(8, "relu", name="first")
    last = [keras.layers.Dense(8, name="second"), keras.layers.Dense(1)]
    model = keras.Sequential([keras.Input((6,)), first, *last])
    model.compile(keras.optimizers.Adam(0.01), "mse")
    x = np.random.default_rng(0).normal(size=(56, 6)).astype(np.float32)
    user = User(x, x.sum(1, keepdims=True), Path(folder, f"{name}.keras"))
    trained = tnt.Model(model, **PARTS[name][1]) if name else model
    history = trained.fit(
        x, user.y, batch_size=4, epochs=2, shuffle=False, verbose=0, callbacks=[user]
    )
    return [*map(np.asarray, user.seen)], history.history["loss"], user.parts


@pytest.mark.core
@pytest.mark.parametrize("name", PARTS)
def test_what_a_callback_uses_is_there(ranks, name, tmp_path):
    size = PARTS[name][0]
    (seen, losses, parts), *_ = ranks.run(size, used, name, str(tmp_path))
    ((alone, theirs, nothing),) = ranks.run(1, used, None, str(tmp_path))
    close(seen, alone, 1e-4, 1e-5)
    close(losses, theirs, 1e-4)
    assert not any(nothing) and all(parts), "it is gathered where nobody uses it"
    together, one = (keras.models.load_model(tmp_path / f"{n}.keras") for n in (name, None))
    close(together.get_weights(), one.get_weights(), 1e-4, 1e-5)
