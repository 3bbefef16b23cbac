"""The ranks of each contestant: they train for a turn when they are asked to.

They answer with its seconds, and with those in which a collective was under way, where it is known.
"""

import json
import os
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tests.benchmarks.fits import CLASSES, epochs, mlp, resnet50, samples
from tests.benchmarks.seat import Seat


@dataclass(frozen=True)
class Task:
    """One model and its input.

    Attributes:
        shape: of a sample, channels last.
        batch: samples that a rank has in each step.
        steps: in each turn of a contestant.
        model: makes it, compiled, with the Keras that it is given.
    """

    title: str
    shape: tuple[int, ...]
    batch: int
    steps: int
    model: Callable[[Any], Any]

    def samples(self, ranks: int = 1) -> Any:
        """Inputs and labels of one turn, for so many ranks."""
        return samples(self.steps * self.batch * ranks, self.shape)


TASKS = {
    "mlp": Task(
        "MLP 784-512-512-10, batch 64 a rank", (784,), 64, 100, lambda keras: mlp(keras, 512, 512)
    ),
    "mlp_adam": Task(
        "MLP 784-512-512-10, Adam, batch 64 a rank",
        (784,),
        64,
        100,
        lambda keras: mlp(keras, 512, 512, optimizer="adam"),
    ),
    "mlp_eight_steps": Task(
        "MLP 784-512-512-10, batch 64 a rank, 8 steps an execution",
        (784,),
        64,
        96,
        lambda keras: mlp(keras, 512, 512, steps=8),
    ),
    "resnet50": Task("ResNet-50, batch 8 of 112x112 a rank", (112, 112, 3), 8, 3, resnet50),
}


def tnt(seat: Seat, name: str, exchange: str = "allreduce") -> None:
    """This project: `tnt.Model` around a Keras model, on ranks under mpiexec."""
    import keras

    import tnt_notebook as tnt
    from tnt_notebook.telemetry.events import under_way

    task, world = TASKS[name], tnt.world()
    assert world.size == seat.ranks, f"the world has {world.size} ranks"
    batch = task.batch * seat.ranks
    model, data = tnt.Model(task.model(keras), exchange=exchange), task.samples(seat.ranks)
    epoch = epochs(keras, model, *data, batch_size=batch, shuffle=False)

    def train() -> tuple[float, float]:
        seat.meet()
        began = time.monotonic_ns()
        return epoch(), under_way(world.trace(), began)

    seat.serve(train, f"tnt_notebook {tnt.__version__}, Keras {keras.__version__}")


def alone(seat: Seat, name: str) -> None:
    """Plain Keras on each rank, which knows nothing of the others."""
    import keras

    task = TASKS[name]
    model = task.model(keras)
    epoch = epochs(keras, model, *task.samples(), batch_size=task.batch, shuffle=False)
    _serve(seat, epoch, f"Keras {keras.__version__}, no communication")


def mwms(seat: Seat, name: str) -> None:
    """TensorFlow's MultiWorkerMirroredStrategy, which works with the legacy Keras only."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    (seat.folder / f"port{seat.rank}").write_text(str(port))
    seat.meet()
    ports = [(seat.folder / f"port{rank}").read_text() for rank in range(seat.ranks)]
    workers = [f"127.0.0.1:{port}" for port in ports]
    place = {"type": "worker", "index": seat.rank}
    os.environ["TF_CONFIG"] = json.dumps({"cluster": {"worker": workers}, "task": place})
    os.environ["TF_USE_LEGACY_KERAS"] = "1"

    import tensorflow as tf
    import tf_keras

    task = TASKS[name]
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    with strategy.scope():
        model = task.model(tf_keras)
    x, y = (a.reshape(task.steps, task.batch, *a.shape[1:]) for a in task.samples())
    # Ready batches of each worker: the input that costs it least.
    data = strategy.distribute_datasets_from_function(
        lambda _: tf.data.Dataset.from_tensor_slices((x, y)).repeat().prefetch(2)
    )
    epoch = epochs(tf_keras, model, data, steps_per_epoch=task.steps)
    _serve(seat, epoch, f"MultiWorkerMirroredStrategy, TensorFlow {tf.__version__}")


def ddp(seat: Seat, name: str) -> None:
    """torch's DistributedDataParallel over gloo; the MLPs only."""
    import torch
    from torch import nn

    from tests.benchmarks.gloo import join

    assert name.startswith("mlp"), f"{name} is not written in torch"
    task = TASKS[name]
    torch.manual_seed(1)
    join(seat)
    layers = [nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU()]
    model = nn.parallel.DistributedDataParallel(nn.Sequential(*layers, nn.Linear(512, CLASSES)))
    kind = torch.optim.Adam if name == "mlp_adam" else torch.optim.SGD
    optimizer = kind(model.parameters(), lr=0.01)
    loss = nn.CrossEntropyLoss()
    x, y = (torch.from_numpy(array).split(task.batch) for array in task.samples())

    def epoch() -> float:
        began = time.perf_counter()
        for inputs, labels in zip(x, y, strict=True):
            optimizer.zero_grad()
            loss(model(inputs), labels).backward()
            optimizer.step()
        return time.perf_counter() - began

    _serve(seat, epoch, f"DistributedDataParallel over gloo, torch {torch.__version__}")


def _serve(seat: Seat, epoch: Callable[[], float], about: str) -> None:
    def train() -> tuple[float, float]:
        seat.meet()
        return epoch(), 0.0

    seat.serve(train, about)
