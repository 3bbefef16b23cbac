"""Plain Keras on each rank, which knows nothing of the others."""

from __future__ import annotations

import sys

from tests.benchmarks.seat import Seat
from tests.benchmarks.training.keras_task import built, compile_for, stopwatch
from tests.benchmarks.training.tasks import TASKS

if __name__ == "__main__":
    task, seat = TASKS[sys.argv[1]], Seat(sys.argv[2])

    import keras

    model, watch = built(keras, task), stopwatch(keras)
    compile_for(keras, model)
    x, y = task.samples()

    def train(_: dict) -> float:
        seat.meet()
        model.fit(x, y, batch_size=task.batch, shuffle=False, verbose=0, callbacks=[watch])
        return watch.seconds

    seat.serve(train, f"Keras {keras.__version__}, no communication")
