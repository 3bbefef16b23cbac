"""A contestant's ranks, from the side of the controller: started once, asked many times.

Each rank holds a connection and sleeps in a read until it is asked, so that a contestant that does
not run costs the others nothing.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from multiprocessing.reduction import send_handle
from pathlib import Path
from typing import Any

from tests.benchmarks import native
from tests.benchmarks.cores import are_shared, core_of
from tests.support.rank_pool import ROOT, rank_environment


class JobError(RuntimeError):
    """The ranks did not start, or one of them failed; with what they wrote."""


class Job:
    """Ranks that run until `stop`.

    Args:
        ranks: how many will connect.
        commands: what starts them: one of an MPI launcher, or one a rank. The address of the
            controller is appended.
        shared_bytes: how much memory the ranks share.
        timeout: seconds that they may take to start, and to answer.
        popen: starts a program; where, is up to it.

    Attributes:
        about: what rank 0 said of itself.

    Raises:
        JobError: they did not start.
    """

    def __init__(
        self,
        ranks: int,
        commands: Sequence[Sequence[str]],
        shared_bytes: int = 0,
        timeout: float = 600,
        popen: Callable[..., subprocess.Popen] = subprocess.Popen,
    ) -> None:
        self._timeout = timeout
        self._folder = tempfile.TemporaryDirectory(prefix="tnt-job-")
        self._log = Path(self._folder.name) / "output"
        self._processes: list[subprocess.Popen] = []
        self._connections: list[Connection] = []
        address = f"{self._folder.name}/socket"
        try:
            with socket.socket(socket.AF_UNIX) as listener, self._log.open("ab") as log:
                listener.bind(address)
                listener.listen(ranks)
                for command in commands:
                    process = popen(
                        [*command, address], cwd=ROOT,
                        env={**rank_environment(), "TNT_TIMEOUT": "120"}, stdin=subprocess.DEVNULL,
                        stdout=log, stderr=log, start_new_session=True,
                    )  # fmt: skip
                    self._processes.append(process)
                self._welcome(listener, ranks, shared_bytes)
            self.about: str = self._answers()[0]
        except BaseException:
            self.stop()
            raise

    def ask(self, **request: Any) -> list[Any]:
        """What each rank answers.

        Raises:
            JobError: a rank has gone, or did not answer in time; the job is stopped.
        """
        try:
            for connection in self._connections:
                connection.send(request)
        except OSError as error:
            raise self._failed(f"a rank cannot be asked: {error}") from None
        return self._answers()

    def stop(self) -> None:
        """Ends all ranks."""
        for connection in self._connections:
            connection.close()
        for process in self._processes:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(30)  # they end by themselves when the connection has gone
        for process in self._processes:
            if process.poll() is None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        self._folder.cleanup()

    def __enter__(self) -> Job:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _welcome(self, listener: socket.socket, ranks: int, shared_bytes: int) -> None:
        by_rank: dict[int, Connection] = {}
        while len(by_rank) < ranks:
            connection = self._accepted(listener)
            rank = self._received(connection, "a process that connected")
            if rank not in range(ranks) or rank in by_rank:
                raise self._failed(f"a process called itself rank {rank} of {ranks}")
            by_rank[rank] = connection
        memory = os.memfd_create("meeting")
        os.ftruncate(memory, mmap.PAGESIZE + shared_bytes)
        for rank, connection in sorted(by_rank.items()):
            connection.send((ranks, are_shared(ranks), core_of(rank), native.library()))
            send_handle(connection, memory, 0)
            self._connections.append(connection)
        os.close(memory)

    def _accepted(self, listener: socket.socket) -> Connection:
        """The next connection, unless the processes end first."""
        listener.settimeout(0.2)
        deadline = time.monotonic() + self._timeout
        while time.monotonic() < deadline:
            with contextlib.suppress(TimeoutError):
                return Connection(listener.accept()[0].detach())
            if any(process.poll() is not None for process in self._processes):
                raise self._failed("the ranks ended while they started")
        raise self._failed(f"the ranks did not start within {self._timeout:.0f} s")

    def _answers(self) -> list[Any]:
        return [self._received(c, f"rank {rank}") for rank, c in enumerate(self._connections)]

    def _received(self, connection: Connection, who: str) -> Any:
        try:
            if connection.poll(self._timeout):
                return connection.recv()
        except (EOFError, ConnectionError):
            raise self._failed(f"{who} has gone") from None
        raise self._failed(f"{who} was silent for {self._timeout:.0f} s")

    def _failed(self, what: str) -> JobError:
        """Stops the ranks that are left."""
        output = self._log.read_text(errors="replace").splitlines()
        self.stop()
        return JobError("\n".join([what, *output[-20:]]))
