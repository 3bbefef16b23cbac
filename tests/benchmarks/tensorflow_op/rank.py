"""A rank that makes the same allreduces in three ways: see `WAYS`."""

from __future__ import annotations

import statistics
import sys
from collections.abc import Callable

import numpy as np

from tests.benchmarks.seat import Seat, timed

#: Allreduces one after another in each run.
CHAIN = 100

#: As ops of one tf.function, each of which takes the result of the one before; the same function
#: without them, for what a call of it costs anyhow; and as calls.
WAYS = OPS, EMPTY, CALLS = ("ops", "empty function", "calls")


def ways(seat: Seat, count: int) -> dict[str, Callable[[], object]]:
    """What runs `CHAIN` allreduces of so many float32, in each way."""
    import tensorflow as tf

    from tnt_notebook import comm
    from tnt_notebook.comm import ops

    world = comm.world()
    assert world.size == seat.ranks, f"the world has {world.size} ranks, and not {seat.ranks}"
    tensor = tf.ones(count)
    source, target = np.ones(count, np.float32), np.empty(count, np.float32)

    @tf.function
    def chain(x: tf.Tensor) -> tf.Tensor:
        with ops.channels():
            for _ in range(CHAIN):
                (x,) = ops.allreduce([x], scale=1 / world.size)
        return x

    @tf.function
    def empty(x: tf.Tensor) -> tf.Tensor:
        return -x

    def calls() -> None:
        for _ in range(CHAIN):
            world.allreduce_into(target, source, op="sum")

    assert np.all(chain(tensor).numpy() == 1)
    return {OPS: lambda: chain(tensor), EMPTY: lambda: empty(tensor), CALLS: calls}


if __name__ == "__main__":
    seat = Seat(sys.argv[1])
    runs: dict[int, dict[str, Callable[[], object]]] = {}

    def answer(request: dict) -> float:
        count = request["bytes"] // 4
        if count not in runs:
            runs[count] = ways(seat, count)
        seconds = timed(seat, lambda: None, runs[count][request["way"]], request["iterations"])
        return statistics.median(seconds)

    seat.serve(answer)
