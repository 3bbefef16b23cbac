"""What an allreduce costs more as a TensorFlow op than as a call.

    python -m tests.benchmarks.tensorflow_op --json op.json

Allreduces one after another, as ops of one tf.function, each of which takes the result of the one
before; the same function without them, for what a call of it costs anyhow; and as calls.
"""

import statistics
from argparse import Namespace
from collections.abc import Callable, Iterator
from functools import cache, partial

import numpy as np

from tests.benchmarks.contestants import OPEN_MPI, commands
from tests.benchmarks.cores import cache_line_ns
from tests.benchmarks.job import Job
from tests.benchmarks.report import reported
from tests.benchmarks.rounds import counted, quartiles, ratio, rotating
from tests.benchmarks.seat import Seat, timed

#: Allreduces in each run.
CHAIN = 100
WAYS = OPS, EMPTY, CALLS = ("ops", "empty function", "calls")


def rank(seat: Seat) -> None:
    """Makes the same allreduces in each way."""
    import tensorflow as tf

    from tnt_notebook import comm
    from tnt_notebook.comm import ops

    world = comm.world()
    assert world.size == seat.ranks, f"the world has {world.size} ranks, and not {seat.ranks}"

    @cache
    def ways(count: int) -> dict[str, Callable[[], object]]:
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

    def answer(way: str, size: int) -> float:
        return statistics.median(timed(seat, lambda: None, ways(size // 4)[way], 20))

    seat.serve(answer)


def measured(options: Namespace) -> Iterator[tuple[str, dict]]:
    """Seconds of one op, of one call, and of an op less a call, in each round."""
    command = commands(OPEN_MPI, options.ranks, "tensorflow_op:rank")
    with Job(options.ranks, command) as job:

        def turn(way: str) -> float:
            return max(job.ask(way=way, size=1024 * options.size))

        turns = {way: partial(turn, way) for way in WAYS}
        for begin in turns.values():
            begin()  # traces
        found = rotating(turns, options.rounds, options.seconds)
    op = [(a - b) / CHAIN for a, b in zip(found[OPS], found[EMPTY], strict=True)]
    call = [a / CHAIN for a in found[CALLS]]
    more = [a - b for a, b in zip(op, call, strict=True)]
    line_ns, where = cache_line_ns(), f"{options.ranks} ranks, {CHAIN} in a row"
    lines = [
        f"cache line {line_ns or 0:.0f} ns",
        f"allreduce of {options.size} KB on {where}, {counted(len(op))}:",
    ]
    seconds = {"op": op, "call": call, "op less call": more}
    for name, rounds in seconds.items():
        low, median, high = (1e6 * value for value in quartiles(rounds))
        fastest = "" if rounds is more else f", fastest {1e6 * min(rounds):.2f}"
        lines.append(f"  {name}: {median:.2f} µs (quartiles {low:.2f} to {high:.2f}){fastest}")
    lines.append(f"  op / call: {ratio(op, call)}")
    yield "\n".join(lines), {"line_ns": line_ns, "seconds": seconds}


if __name__ == "__main__":
    reported(
        __doc__, 21, 20, measured,
        ranks={"type": int, "default": 2},
        size={"type": int, "default": 4, "help": "in KB"},
    )  # fmt: skip
