"""This project's backend: on a bucket of shared memory, and on memory of the rank's own."""

from __future__ import annotations

import sys
from functools import partial

from tests.benchmarks.allreduce.vectors import separate, serve
from tests.benchmarks.seat import Seat

if __name__ == "__main__":
    seat = Seat(sys.argv[1])  # binds this process before the backend starts threads

    import tnt_notebook
    from tnt_notebook import comm

    world = comm.world()

    def in_place(count: int, algorithm: str = "") -> tuple:
        bucket = world.bucket(count, "float32")
        return bucket.array, bucket.array, partial(bucket.allreduce, "sum", 1.0, algorithm)

    def private(count: int, algorithm: str | None = None) -> tuple:
        vector, total = separate(count)
        return vector, total, partial(world.allreduce_into, total, vector, "sum", 1.0, algorithm)

    assert world.size == seat.ranks, f"the world has {world.size} ranks, and not {seat.ranks}"
    about = f"tnt_notebook {tnt_notebook.__version__}"
    serve(seat, {"in place": in_place, "private": private}, about)
