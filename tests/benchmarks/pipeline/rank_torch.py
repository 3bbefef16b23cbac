"""torch.distributed.pipelining, 1F1B over gloo; on one rank plain torch."""

from __future__ import annotations

import statistics
import sys
import time
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

from tests.benchmarks.pipeline.tasks import TASKS
from tests.benchmarks.seat import Seat

if __name__ == "__main__":
    task, seat = TASKS[sys.argv[1]], Seat(sys.argv[2])

    import torch
    from torch import distributed, nn

    torch.set_num_threads(1)

    from torch.distributed.pipelining import PipelineStage, Schedule1F1B

    from tests.benchmarks.pipeline.torch_models import layers_of

    layers, loss = layers_of(task), nn.MSELoss()
    cuts = [0, len(layers)]
    if seat.ranks > 1:
        meeting = Path(sys.argv[2]).with_name("gloo").as_uri()
        distributed.init_process_group(
            "gloo", init_method=meeting, rank=seat.rank, world_size=seat.ranks
        )
        seconds = []
        # The same rule as ours: the slowest stage is as quick as it can be.
        value = torch.randn(task.rows, *task.shape)
        for layer in layers:
            times = []
            for _ in range(3):
                begin = time.perf_counter()
                given = layer(value.detach().requires_grad_())
                given.sum().backward()
                times.append(time.perf_counter() - begin)
            seconds.append(min(times))
            value = given.detach()
        half = min(range(1, len(layers)), key=lambda k: max(sum(seconds[:k]), sum(seconds[k:])))
        chosen = [half]
        distributed.broadcast_object_list(chosen)
        assert seat.ranks == 2
        cuts = [0, chosen[0], len(layers)]
    mine = nn.Sequential(*layers[cuts[seat.rank] : cuts[seat.rank + 1]])
    optimizer = torch.optim.SGD(mine.parameters(), lr=0.01)

    @cache
    def data(micro_batches: int) -> tuple[torch.Tensor, torch.Tensor]:
        x, y = map(torch.from_numpy, task.batch(micro_batches))
        return x, y

    @cache
    def schedule(micro_batches: int) -> Any:
        stage = PipelineStage(mine, seat.rank, seat.ranks, torch.device("cpu"))
        return Schedule1F1B(stage, micro_batches, loss_fn=loss)

    def step(micro_batches: int) -> None:
        optimizer.zero_grad()
        x, y = data(micro_batches)
        if seat.ranks == 1:
            loss(mine(x), y).backward()
        elif seat.rank == 0:
            schedule(micro_batches).step(x)
        else:
            schedule(micro_batches).step(target=y)
        optimizer.step()

    def train(request: dict) -> dict:
        times = []
        for _ in range(task.steps + 1):
            times.append(time.perf_counter())
            step(request["micro_batches"])
        times.append(time.perf_counter())
        # The ranks of a pipeline run apart by a part of a step: the first one is left out.
        return {"seconds": statistics.mean(b - a for a, b in pairwise(times[1:]))}

    seat.serve(train, f"torch {torch.__version__}, 1F1B over gloo")
