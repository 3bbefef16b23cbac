"""The floor of `native/floor.c`, which also fills, meets and measures by itself."""

from __future__ import annotations

import ctypes
import sys

import numpy as np

from tests.benchmarks.allreduce.vectors import separate
from tests.benchmarks.seat import Seat

#: Elements of the largest vector.
CAPACITY = (64 << 20) // 4

if __name__ == "__main__":
    seat = Seat(sys.argv[1])
    place = (seat.shared, seat.rank, seat.ranks, seat.shared_cores, CAPACITY)
    source, target = separate(CAPACITY)
    at = seat.native.floor_vector(seat.shared, seat.rank, seat.ranks, CAPACITY)
    shared = np.ctypeslib.as_array((ctypes.c_float * CAPACITY).from_address(at))

    def measure(zero_copy: bool, count: int, iterations: int) -> list[float]:
        seconds = np.empty(iterations)
        memory = source.ctypes.data, target.ctypes.data, count, iterations, seconds.ctypes.data
        seat.native.floor_measure(*place, zero_copy, *memory)
        total = (shared if zero_copy else target)[[0, count - 1]]
        assert np.all(total == seat.ranks * (seat.ranks + 1) / 2), total
        return seconds.tolist()

    def answer(request: dict) -> list[float]:
        zero_copy, count = request["mode"] == "in place", request["bytes"] // 4
        measure(zero_copy, count, 1)
        return measure(zero_copy, count, request["iterations"])

    seat.serve(answer, "zero copy, and staging through shared memory for private vectors")
