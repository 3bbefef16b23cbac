"""A rank of a benchmark: answers what the controller (`job.py`) asks, and sleeps in between.

This module runs in every contestant's Python, so it imports nothing but the standard library.
"""

from __future__ import annotations

import array
import ctypes
import json
import mmap
import os
import socket
import time
from collections.abc import Callable
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
        native: the C parts, see `tests.benchmarks.native`.
        shared: address of memory that all ranks of the job share, beyond the meeting point.
    """

    def __init__(self, address: str) -> None:
        self.rank = next(int(os.environ[v]) for v in _RANK_VARIABLES if v in os.environ)
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.connect(address)
        self._say({"rank": self.rank})
        text, (descriptor,), _, _ = socket.recv_fds(self._socket, 1 << 16, 1)
        welcome = json.loads(text)
        self.ranks: int = welcome["ranks"]
        self.shared_cores: bool = welcome["shared_cores"]
        os.sched_setaffinity(0, {welcome["core"]})
        self.native = loaded(Path(welcome["library"]))
        self._memory = mmap.mmap(descriptor, 0)
        os.close(descriptor)
        self._seats = ctypes.addressof(ctypes.c_char.from_buffer(self._memory))
        self.shared = self._seats + mmap.PAGESIZE
        self._lines = self._socket.makefile("r")
        self._turn = ctypes.c_uint()
        self._turn_address = ctypes.addressof(self._turn)

    def serve(self, answer: Callable[[dict], Any], about: str = "") -> None:
        """Answers requests until the controller closes the connection.

        Args:
            answer: takes a request; gives what JSON can carry.
            about: what runs here, such as the version of a library.
        """
        self._say({"ready": about})
        for line in self._lines:
            self._say({"answer": answer(json.loads(line))})

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
        while not self.native.met(seats, ranks, shared, 0, turn.value):
            if time.monotonic() > deadline:
                raise TimeoutError(f"rank {self.rank} waited {_LIMIT} s for another rank")
            if progress:
                progress()
            time.sleep(_NAP)

    def _say(self, message: dict) -> None:
        self._socket.sendall(json.dumps(message).encode() + b"\n")


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
    """
    now, seconds = time.perf_counter_ns, array.array("d")
    for _ in range(iterations):
        fill()
        seat.meet(progress)
        began = now()
        run()
        seconds.append(1e-9 * (now() - began))
    return seconds.tolist()
