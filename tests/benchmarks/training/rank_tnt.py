"""This project: `tnt.Model` around a Keras model, on ranks under mpiexec."""

from __future__ import annotations

import sys
import time

from tests.benchmarks.seat import Seat
from tests.benchmarks.training.keras_task import built, compile_for, stopwatch
from tests.benchmarks.training.tasks import TASKS

if __name__ == "__main__":
    task, seat = TASKS[sys.argv[1]], Seat(sys.argv[2])

    import keras

    import tnt_notebook as tnt
    from tnt_notebook.telemetry.events import under_way

    assert tnt.world().size == seat.ranks, f"the world has {tnt.world().size} ranks"
    model, watch = tnt.Model(built(keras, task)), stopwatch(keras)
    compile_for(keras, model)
    x, y = task.samples(seat.ranks)
    batch = task.batch * seat.ranks

    began = 0

    def answer(request: dict) -> float:
        """Seconds of a turn, or those in which the last one had a collective under way."""
        global began
        if request.get("of") == "communication":
            return under_way(tnt.world().trace(), began)
        seat.meet()
        began = time.monotonic_ns()
        model.fit(x, y, batch_size=batch, shuffle=False, verbose=0, callbacks=[watch])
        return watch.seconds  # 0 but on rank 0, where callbacks run

    seat.serve(answer, f"tnt_notebook {tnt.__version__}, Keras {keras.__version__}")
