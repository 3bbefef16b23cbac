"""Ranks that learn the digits of scikit-learn with an exchange, again and again."""

from __future__ import annotations

import functools
import statistics
import time
from itertools import pairwise
from typing import NamedTuple

from tests.benchmarks.seat import Seat

BATCH = 128


class Learnt(NamedTuple):
    """What one training came to.

    Attributes:
        losses, accuracies: of the validation data, by epoch.
        epoch_s: seconds of an epoch: the median of all but the first, in which steps are traced.
        steps: of an epoch.
        sent: bytes that this rank sends in a step.
    """

    losses: list[float]
    accuracies: list[float]
    epoch_s: float
    steps: int
    sent: float


def learn(seat: Seat, exchange: str, width: str) -> None:
    """Two dense layers of this width."""
    import keras

    import tnt_notebook as tnt

    world = tnt.world()
    assert world.size == seat.ranks, f"the world has {world.size} ranks"
    answer = functools.partial(_learnt, seat, exchange, int(width))
    seat.serve(answer, f"tnt_notebook {tnt.__version__}, Keras {keras.__version__}")


def _learnt(seat: Seat, exchange: str, width: int, seed: int, epochs: int) -> Learnt:
    import keras
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split

    import tnt_notebook as tnt
    from tnt_notebook.telemetry.events import sent_bytes
    from tnt_notebook.telemetry.typical_step import steps_of

    digits = load_digits()
    x, x_kept, y, y_kept = train_test_split(
        (digits.data / 16).astype("float32"), digits.target, test_size=0.2, random_state=0
    )
    keras.utils.set_random_seed(seed)
    hidden = [keras.layers.Dense(width, "relu") for _ in range(2)]
    model = keras.Sequential([keras.Input((64,)), *hidden, keras.layers.Dense(10, "softmax")])
    optimizer = keras.optimizers.SGD(0.02, momentum=0.9)
    model.compile(optimizer, "sparse_categorical_crossentropy", metrics=["accuracy"])
    ends: list[float] = []
    watch = keras.callbacks.LambdaCallback(on_epoch_end=lambda *_: ends.append(time.perf_counter()))
    seat.meet()
    began = time.monotonic_ns()
    fitted = tnt.Model(model, exchange=exchange).fit(
        x, y, batch_size=BATCH, epochs=epochs, verbose=0, callbacks=[watch],
        validation_data=(x_kept, y_kept), validation_batch_size=len(x_kept),
    )  # fmt: skip
    events = tnt.world().trace()
    events = events[events["begin_ns"] >= began]
    return Learnt(
        fitted.history["val_loss"],
        fitted.history["val_accuracy"],
        # Callbacks run on rank 0.
        statistics.median(b - a for a, b in pairwise(ends)) if ends else 0.0,
        -(-len(x) // BATCH),
        sent_bytes(events) / max(1, len(steps_of(events))),
    )
