"""The ranks of each contestant: they train some steps when they are asked to."""

import statistics
import time
from functools import cache
from itertools import pairwise
from typing import Any

from tests.benchmarks.pipeline.tasks import TASKS
from tests.benchmarks.seat import Seat


def tnt(seat: Seat, name: str) -> None:
    """This project's pipelines: `tnt.Model` around a Keras model, on ranks under mpiexec."""
    import keras
    import tensorflow as tf

    import tnt_notebook as tnt
    from tests.benchmarks.pipeline.keras_models import built
    from tnt_notebook.telemetry.events import EVENT_OF, is_of

    task, world, steps = TASKS[name], tnt.world(), TASKS[name].steps + 1
    assert world.size == seat.ranks, f"the world has {world.size} ranks"

    @cache
    def trained(schedule: str, micro_batches: int, cut_at: str) -> Any:
        cut = cut_at if cut_at == "auto" else (cut_at,)
        pipeline = tnt.Pipeline(seat.ranks, micro_batches, schedule, cut_at=cut)
        return tnt.Model(built(task), pipeline=pipeline)

    @cache
    def data(micro_batches: int) -> Any:
        return tf.data.Dataset.from_tensors(task.batch(micro_batches)).repeat()

    def train(schedule: str, micro_batches: int, cut_at: str = "auto") -> dict:
        """Seconds from the begin of one step to that of the next, and in the last one the seconds
        that this rank was at work, and its begin and end on it."""
        model = trained(schedule, micro_batches, cut_at)
        began = time.monotonic_ns()
        model.fit(data(micro_batches), steps_per_epoch=steps, verbose=0)
        events = world.trace()
        actions = events[is_of(events, *EVENT_OF.values()) & (events["begin_ns"] >= began)]
        begin, end = (
            1e-9 * actions[field].astype(float).reshape(steps, -1)
            for field in ("begin_ns", "end_ns")
        )
        return {
            "seconds": (begin[-1, 0] - begin[0, 0]) / (steps - 1),
            "busy": (end - begin)[-1].sum(),
            "begin": begin[-1].min(),
            "end": end[-1].max(),
        }

    seat.serve(train, f"tnt_notebook {tnt.__version__}, Keras {keras.__version__}")


def alone(seat: Seat, name: str) -> None:
    """Plain Keras in one process."""
    import keras
    import tensorflow as tf

    from tests.benchmarks.pipeline.keras_models import built

    task = TASKS[name]
    model = built(task)
    times: list[float] = []
    clock = keras.callbacks.LambdaCallback(
        on_train_batch_begin=lambda batch, logs: times.append(time.perf_counter())
    )

    @cache
    def data(micro_batches: int) -> Any:
        return tf.data.Dataset.from_tensors(task.batch(micro_batches)).repeat()

    def train(micro_batches: int) -> dict:
        times.clear()
        model.fit(data(micro_batches), steps_per_epoch=task.steps + 1, verbose=0, callbacks=[clock])
        return {"seconds": statistics.mean(b - a for a, b in pairwise(times))}

    seat.serve(train, f"Keras {keras.__version__}, one process")


def torch(seat: Seat, name: str) -> None:
    """torch.distributed.pipelining, 1F1B over gloo; on one rank plain torch."""
    import torch
    from torch import nn
    from torch.distributed.pipelining import PipelineStage, Schedule1F1B

    from tests.benchmarks.gloo import join
    from tests.benchmarks.pipeline.torch_models import layers_of, middle

    join(seat)
    task, loss = TASKS[name], nn.MSELoss()
    layers = layers_of(task)
    cuts = [0, len(layers)]
    if seat.ranks > 1:
        assert seat.ranks == 2
        chosen = [middle(layers, torch.randn(task.rows, *task.shape))]
        torch.distributed.broadcast_object_list(chosen)
        cuts[1:1] = chosen
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

    def train(micro_batches: int) -> dict:
        times = []
        for _ in range(task.steps + 1):
            times.append(time.perf_counter())
            step(micro_batches)
        times.append(time.perf_counter())
        # The ranks of a pipeline run apart by a part of a step: the first one is left out.
        return {"seconds": statistics.mean(b - a for a, b in pairwise(times[1:]))}

    seat.serve(train, f"torch {torch.__version__}, 1F1B over gloo")
