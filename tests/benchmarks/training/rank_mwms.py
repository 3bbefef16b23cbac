"""TensorFlow's MultiWorkerMirroredStrategy, which works with the legacy Keras only."""

from __future__ import annotations

import json
import os
import socket
import sys
from pathlib import Path

from tests.benchmarks.seat import Seat
from tests.benchmarks.training.keras_task import built, compile_for, stopwatch
from tests.benchmarks.training.tasks import TASKS


def addresses(seat: Seat, folder: Path) -> list[str]:
    """A free port of each rank, told to the others through files."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    (folder / f"port{seat.rank}").write_text(str(port))
    seat.meet()
    return [f"127.0.0.1:{(folder / f'port{rank}').read_text()}" for rank in range(seat.ranks)]


if __name__ == "__main__":
    task, seat = TASKS[sys.argv[1]], Seat(sys.argv[2])
    workers = addresses(seat, Path(sys.argv[2]).parent)
    place = {"type": "worker", "index": seat.rank}
    os.environ["TF_CONFIG"] = json.dumps({"cluster": {"worker": workers}, "task": place})
    os.environ["TF_USE_LEGACY_KERAS"] = "1"

    import tensorflow as tf
    import tf_keras

    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    watch = stopwatch(tf_keras)
    with strategy.scope():
        model = built(tf_keras, task)
        compile_for(tf_keras, model)
    x, y = (a.reshape(task.steps, task.batch, *a.shape[1:]) for a in task.samples())
    # Ready batches of each worker: the input that costs it least.
    data = strategy.distribute_datasets_from_function(
        lambda _: tf.data.Dataset.from_tensor_slices((x, y)).repeat().prefetch(2)
    )

    def train(_: dict) -> float:
        seat.meet()
        model.fit(data, steps_per_epoch=task.steps, verbose=0, callbacks=[watch])
        return watch.seconds

    seat.serve(train, f"MultiWorkerMirroredStrategy, TensorFlow {tf.__version__}")
