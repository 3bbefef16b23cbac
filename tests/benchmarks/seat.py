"""A rank of a benchmark: answers what the controller (`job.py`) asks, and sleeps in between.

    python -m tests.benchmarks.seat MODULE:FUNCTION [WORD ...] SOCKET

The function gets the seat and the words. This module runs in every contestant's Python, so it
imports nothing but the standard library.
"""

import array
import ctypes
import importlib
import mmap
import os
import sys
import time
from collections.abc import Callable
from multiprocessing.connection import Client
from multiprocessing.reduction import recv_handle
from pathlib import Path
from typing import Any

from tests.benchmarks.native import loaded

#: Who a process is: set by `contestants.py`, or by the launchers of Open MPI, MPICH and Intel MPI.
_RANK_VARIABLES = ("TNT_BENCH_RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK")

#: Seconds that a rank waits for the others before it naps, and that it naps.
_PATIENCE = _NAP = 50e-6

#: Seconds after which a rank gives the others up.
_LIMIT = 300


class Seat:
    """One rank's place in a job.

    Taking it binds the process to its core, so do it before anything that starts threads.

    Args:
        address: the controller's Unix socket.

    Attributes:
        rank, ranks: who this is, and how many there are.
        shared_cores: whether there are more ranks than cores.
        folder: for files that all ranks of the job see.
        native: the C parts, see `tests.benchmarks.native`.
        shared: address of memory that all ranks of the job share, beyond the meeting point.
    """

    def __init__(self, address: str) -> None:
        self.rank = next(int(os.environ[v]) for v in _RANK_VARIABLES if v in os.environ)
        self.folder = Path(address).parent
        self._controller = Client(address)
        self._controller.send(self.rank)
        self.ranks, self.shared_cores, core, library = self._controller.recv()
        os.sched_setaffinity(0, {core})
        self.native = loaded(library)
        descriptor = recv_handle(self._controller)
        self._memory = mmap.mmap(descriptor, 0)
        os.close(descriptor)
        self._seats = ctypes.addressof(ctypes.c_char.from_buffer(self._memory))
        self.shared = self._seats + mmap.PAGESIZE
        self._turn = ctypes.c_uint()
        self._turn_address = ctypes.addressof(self._turn)

    def serve(self, answer: Callable[..., Any], about: str = "") -> None:
        """Answers requests until the controller closes the connection.

        Args:
            answer: takes what `Job.ask` is given.
            about: what runs here, such as the version of a library.
        """
        self._controller.send(about)
        while True:
            try:
                request = self._controller.recv()
            except (EOFError, ConnectionError):
                return
            self._controller.send(answer(**request))

    def meet(self, progress: Callable[[], object] | None = None) -> None:
        """Returns when all ranks have called it, at nearly the same moment on all.

        Args:
            progress: called now and then while waiting. For a library that sends only while one of
                its functions runs, and may not have sent all when the last one returned.
        """
        # First with naps: who is done must not take the core from who is not. Then, when nobody has
        # anything else to do, spinning, so that all leave together.
        self._gather(_PATIENCE, progress)
        self._gather(1.0, None)

    def _gather(self, patience: float, progress: Callable[[], object] | None) -> None:
        seats, ranks, shared, turn = self._seats, self.ranks, self.shared_cores, self._turn
        if self.native.meet_within(seats, self.rank, ranks, shared, patience, self._turn_address):
            return
        deadline = time.monotonic() + _LIMIT
        while not self.native.all_there(seats, ranks, shared, 0, turn.value):
            if time.monotonic() > deadline:
                raise TimeoutError(f"rank {self.rank} waited {_LIMIT} s for another rank")
            if progress:
                progress()
            time.sleep(_NAP)


def timed(
    seat: Seat,
    fill: Callable[[], object],
    run: Callable[[], object],
    iterations: int,
    progress: Callable[[], object] | None = None,
) -> list[float]:
    """Seconds of each run on this rank, of which each begins when all ranks have met.

    Args:
        fill: what is done before each, and does not count.
        run: what is timed.
        progress: see `Seat.meet`.
    """
    now, seconds = time.perf_counter_ns, array.array("d")
    for _ in range(iterations):
        fill()
        seat.meet(progress)
        began = now()
        run()
        seconds.append(1e-9 * (now() - began))
    return seconds.tolist()


if __name__ == "__main__":
    name, *words, address = sys.argv[1:]
    seat = Seat(address)  # binds this process before libraries start threads
    module, _, function = name.partition(":")
    getattr(importlib.import_module(module), function)(seat, *words)
