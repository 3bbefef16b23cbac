"""This project's pipelines: `tnt.Model` around a Keras model, on ranks under mpiexec."""

from __future__ import annotations

import sys
from functools import cache
from typing import Any

from tests.benchmarks.pipeline.tasks import TASKS
from tests.benchmarks.seat import Seat

if __name__ == "__main__":
    task, seat = TASKS[sys.argv[1]], Seat(sys.argv[2])

    import keras
    import tensorflow as tf

    import tnt_notebook as tnt
    from tests.benchmarks.pipeline.keras_models import built
    from tests.benchmarks.pipeline.steps import steps_on

    over = tnt.world()
    assert over.size == seat.ranks, f"the world has {over.size} ranks"

    @cache
    def trained(schedule: str, micro_batches: int, cut_at: str) -> Any:
        cut = cut_at if cut_at == "auto" else (cut_at,)
        pipeline = tnt.Pipeline(seat.ranks, micro_batches, schedule, cut_at=cut)
        return tnt.Model(built(task), pipeline=pipeline)

    @cache
    def data(micro_batches: int) -> Any:
        return tf.data.Dataset.from_tensors(task.batch(micro_batches)).repeat()

    def train(request: dict) -> dict:
        """Seconds from the begin of one step to that of the next, and in the last one the seconds
        that this rank was at work, and its whole length on it."""
        schedule, micro_batches = request["schedule"], request["micro_batches"]
        model = trained(schedule, micro_batches, request.get("cut_at", "auto"))
        steps = task.steps + 1
        model.fit(data(micro_batches), steps_per_epoch=steps, verbose=0)
        spans = steps_on(over.trace(), over.rank, steps)
        begins = [step[0].begin for step in spans]
        return {
            "seconds": (begins[-1] - begins[0]) / (len(begins) - 1),
            "busy": sum(s.end - s.begin for s in spans[-1]),
            "begin": spans[-1][0].begin,
            "end": max(s.end for s in spans[-1]),
        }

    seat.serve(train, f"tnt_notebook {tnt.__version__}, Keras {keras.__version__}")
