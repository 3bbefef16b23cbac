"""This project: `tnt.Model` around a Keras model, on ranks under mpiexec."""

from __future__ import annotations

import sys

from tests.benchmarks.seat import Seat
from tests.benchmarks.training.keras_task import built, compile_for, stopwatch
from tests.benchmarks.training.tasks import TASKS

if __name__ == "__main__":
    task, seat = TASKS[sys.argv[1]], Seat(sys.argv[2])

    import keras

    import tnt_notebook as tnt

    assert tnt.world().size == seat.ranks, f"the world has {tnt.world().size} ranks"
    model, watch = tnt.Model(built(keras, task)), stopwatch(keras)
    compile_for(keras, model)
    x, y = task.samples(seat.ranks)
    batch = task.batch * seat.ranks

    def train(_: dict) -> float:
        seat.meet()
        model.fit(x, y, batch_size=batch, shuffle=False, verbose=0, callbacks=[watch])
        return watch.seconds  # 0 but on rank 0, where callbacks run

    seat.serve(train, f"tnt_notebook {tnt.__version__}, Keras {keras.__version__}")
