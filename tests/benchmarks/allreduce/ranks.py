"""The ranks of each contestant: fill, meet, run an allreduce, and check the sum."""

import ctypes
from collections.abc import Callable
from functools import cache, partial
from typing import Any

import numpy as np

from tests.benchmarks.seat import Seat, timed

#: Elements of the largest vector.
CAPACITY = (64 << 20) // 4


def tnt(seat: Seat) -> None:
    """This project's backend: on a bucket of shared memory, and on memory of the rank's own."""
    import tnt_notebook
    from tnt_notebook import comm

    world = comm.world()

    def prepare(mode: str, count: int, algorithm: str) -> tuple:
        if mode == "in place":
            bucket = world.bucket(count, "float32")
            return bucket.array, bucket.array, partial(bucket.allreduce, "sum", 1.0, algorithm)
        vector, total = _separate(count)
        return vector, total, partial(world.allreduce_into, total, vector, "sum", 1.0, algorithm)

    assert world.size == seat.ranks, f"the world has {world.size} ranks, and not {seat.ranks}"
    about = f"tnt_notebook {tnt_notebook.__version__}"
    _serve(seat, prepare, about)


def mpi(seat: Seat) -> None:
    """MPI_Allreduce of whatever MPI library mpi4py finds."""
    from mpi4py import MPI

    ranks = MPI.COMM_WORLD

    def prepare(mode: str, count: int, algorithm: str) -> tuple:
        vector, total = _separate(count)
        source, target = [vector, MPI.FLOAT], [total, MPI.FLOAT]
        if mode == "in place":
            return vector, vector, lambda: ranks.Allreduce(MPI.IN_PLACE, source)
        return vector, total, lambda: ranks.Allreduce(source, target)

    assert ranks.size == seat.ranks, f"MPI sees {ranks.size} ranks, and not {seat.ranks}"
    about = MPI.Get_library_version().replace("\0", "").split(",")[0].splitlines()[0]
    _serve(seat, prepare, about, progress=ranks.Iprobe)


def gloo(seat: Seat) -> None:
    """torch.distributed.all_reduce over gloo, which is always in place."""
    import torch

    from tests.benchmarks.gloo import join

    join(seat)

    def prepare(mode: str, count: int, algorithm: str) -> tuple:
        vector = torch.zeros(count)
        return vector.numpy(), vector.numpy(), lambda: torch.distributed.all_reduce(vector)

    _serve(seat, prepare, f"gloo of torch {torch.__version__}")


def floor(seat: Seat) -> None:
    """The floor of `native.c`, which also fills, meets and measures by itself."""
    place = (seat.shared, seat.rank, seat.ranks, seat.shared_cores, CAPACITY)
    source, target = _separate(CAPACITY)
    at = seat.native.floor_vector(seat.shared, seat.rank, seat.ranks, CAPACITY)
    shared = np.ctypeslib.as_array((ctypes.c_float * CAPACITY).from_address(at))

    def measure(zero_copy: bool, count: int, iterations: int) -> list[float]:
        seconds = np.empty(iterations)
        memory = source.ctypes.data, target.ctypes.data, count, iterations, seconds.ctypes.data
        seat.native.floor_measure(*place, zero_copy, *memory)
        _check((shared if zero_copy else target)[[0, count - 1]], seat)
        return seconds.tolist()

    def answer(mode: str, size: int, iterations: int, algorithm: str) -> list[float]:
        zero_copy, count = mode == "in place", size // 4
        measure(zero_copy, count, 1)
        return measure(zero_copy, count, iterations)

    seat.serve(answer, "zero copy, and staging through shared memory for private vectors")


def _serve(
    seat: Seat,
    prepare: Callable[[str, int, str], tuple[np.ndarray, np.ndarray, Callable[[], Any]]],
    about: str,
    progress: Callable[[], object] | None = None,
) -> None:
    """Answers with the seconds of each iteration.

    Args:
        prepare: makes ready an allreduce of so many elements, in a mode, by an algorithm: the
            vector to fill, that of the sum, and what runs it. Once: it may keep what it needs for
            the next call.
        progress: see `Seat.meet`.
    """

    @cache
    def ready(*how: Any) -> tuple:
        vector, total, run = prepare(*how)

        def fill() -> None:
            vector.fill(seat.rank + 1)

        timed(seat, fill, run, 1, progress)
        _check(total, seat)
        return fill, run, total

    def answer(mode: str, size: int, iterations: int, algorithm: str) -> list[float]:
        fill, run, total = ready(mode, size // 4, algorithm)
        timed(seat, fill, run, 1, progress)  # warms up
        seconds = timed(seat, fill, run, iterations, progress)
        _check(total[[0, -1]], seat)
        return seconds

    seat.serve(answer, about)


def _separate(count: int) -> tuple[np.ndarray, np.ndarray]:
    """An input and an output, both of which have been written to."""
    return np.zeros(count, np.float32), np.zeros(count, np.float32)


def _check(total: np.ndarray, seat: Seat) -> None:
    expected = seat.ranks * (seat.ranks + 1) / 2
    if not np.all(total == expected):
        raise RuntimeError(f"rank {seat.rank} has {total}, and not {expected} everywhere")
