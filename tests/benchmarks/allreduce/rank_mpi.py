"""MPI_Allreduce of whatever MPI library mpi4py finds."""

from __future__ import annotations

import sys

from tests.benchmarks.allreduce.vectors import separate, serve
from tests.benchmarks.seat import Seat

if __name__ == "__main__":
    seat = Seat(sys.argv[1])  # binds this process before MPI starts threads

    from mpi4py import MPI

    ranks = MPI.COMM_WORLD

    def in_place(count: int) -> tuple:
        vector, _ = separate(count)
        message = [vector, MPI.FLOAT]
        return vector, vector, lambda: ranks.Allreduce(MPI.IN_PLACE, message)

    def private(count: int) -> tuple:
        vector, total = separate(count)
        source, target = [vector, MPI.FLOAT], [total, MPI.FLOAT]
        return vector, total, lambda: ranks.Allreduce(source, target)

    assert ranks.size == seat.ranks, f"MPI sees {ranks.size} ranks, and not {seat.ranks}"
    about = MPI.Get_library_version().replace("\0", "").split(",")[0].splitlines()[0]
    serve(seat, {"in place": in_place, "private": private}, about, progress=ranks.Iprobe)
