"""torch's DistributedDataParallel over gloo; the MLP only."""

from __future__ import annotations

import sys
import time
from pathlib import Path

from tests.benchmarks.seat import Seat
from tests.benchmarks.training.tasks import CLASSES, MLP, TASKS

if __name__ == "__main__":
    task, seat = TASKS[sys.argv[1]], Seat(sys.argv[2])
    assert task is MLP, f"{task.title} is not written in torch"

    import torch
    from torch import distributed, nn

    torch.set_num_threads(1)
    torch.manual_seed(1)
    # The ranks find each other through a file beside the controller's socket.
    meeting = Path(sys.argv[2]).with_name("gloo").as_uri()
    distributed.init_process_group(
        "gloo", init_method=meeting, rank=seat.rank, world_size=seat.ranks
    )
    layers = [nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU()]
    model = nn.parallel.DistributedDataParallel(nn.Sequential(*layers, nn.Linear(512, CLASSES)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    loss = nn.CrossEntropyLoss()
    x, y = (torch.from_numpy(array).split(task.batch) for array in task.samples())

    def train(_: dict) -> float:
        seat.meet()
        began = time.perf_counter()
        for inputs, labels in zip(x, y, strict=True):
            optimizer.zero_grad()
            loss(model(inputs), labels).backward()
            optimizer.step()
        return time.perf_counter() - began

    seat.serve(train, f"DistributedDataParallel over gloo, torch {torch.__version__}")
