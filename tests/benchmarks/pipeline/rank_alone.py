"""Plain Keras in one process."""

from __future__ import annotations

import statistics
import sys
import time
from functools import cache
from itertools import pairwise
from typing import Any

from tests.benchmarks.pipeline.tasks import TASKS
from tests.benchmarks.seat import Seat

if __name__ == "__main__":
    task, seat = TASKS[sys.argv[1]], Seat(sys.argv[2])

    import keras
    import tensorflow as tf

    from tests.benchmarks.pipeline.keras_models import built

    class Clock(keras.callbacks.Callback):
        """When steps begin."""

        def __init__(self) -> None:
            super().__init__()
            self.times: list[float] = []

        def on_train_batch_begin(self, batch: int, logs: dict | None = None) -> None:
            self.times.append(time.perf_counter())

    model = built(task)

    @cache
    def data(micro_batches: int) -> Any:
        return tf.data.Dataset.from_tensors(task.batch(micro_batches)).repeat()

    def train(request: dict) -> dict:
        clock, steps = Clock(), task.steps + 1
        model.fit(
            data(request["micro_batches"]), steps_per_epoch=steps, verbose=0, callbacks=[clock]
        )
        return {"seconds": statistics.mean(b - a for a, b in pairwise(clock.times))}

    seat.serve(train, f"Keras {keras.__version__}, one process")
