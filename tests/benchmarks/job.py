"""A contestant's ranks, from the side of the controller: started once, asked many times.

Each rank holds a connection and sleeps in a read until it is asked, so that a contestant that does
not run costs the others nothing. What the ranks say and are told is one line of JSON each.
"""

from __future__ import annotations

import contextlib
import json
import mmap
import os
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.benchmarks.cores import are_shared, core_of

ROOT = Path(__file__).parents[2]


class JobError(RuntimeError):
    """The ranks did not start, or one of them failed; with what they wrote."""


@dataclass(frozen=True)
class Command:
    """What is started for one or more ranks.

    Attributes:
        words: program and arguments; the address of the controller is appended.
        environment: what is set on top of this process's.
    """

    words: tuple[str, ...]
    environment: dict[str, str] = field(default_factory=dict)


class Job:
    """Ranks that run until `stop`.

    Args:
        ranks: how many will connect.
        commands: what starts them: one of an MPI launcher, or one a rank.
        library: the compiled C parts.
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
        commands: Sequence[Command],
        library: Path,
        shared_bytes: int = 0,
        timeout: float = 120,
        popen: Callable[..., subprocess.Popen] = subprocess.Popen,
    ) -> None:
        self._timeout = timeout
        self._popen = popen
        self._folder = tempfile.TemporaryDirectory(prefix="tnt-job-")
        self._log = Path(self._folder.name) / "output"
        self._connections: list[socket.socket] = []
        self._lines: list[Any] = []
        address = Path(self._folder.name) / "socket"
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(address))
            listener.listen(ranks)
            self._processes = [self._started(command, address) for command in commands]
            try:
                self._welcome(listener, ranks, library, shared_bytes)
                self.about: str = self._answers("ready")[0]
            except BaseException:
                self.stop()
                raise

    def ask(self, **request: Any) -> list[Any]:
        """What each rank answers.

        Raises:
            JobError: a rank has gone, or did not answer in time; the job is stopped.
        """
        line = json.dumps(request).encode() + b"\n"
        try:
            for connection in self._connections:
                connection.sendall(line)
            return self._answers("answer")
        except OSError as error:
            problem = self._failure(f"a rank cannot be asked: {error}")
            self.stop()
            raise problem from None
        except JobError:
            self.stop()
            raise

    def stop(self) -> None:
        """Ends all ranks."""
        for stream in (*self._lines, *self._connections):
            stream.close()
        for process in self._processes:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(5)  # they end by themselves when the connection has gone
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

    def _started(self, command: Command, address: Path) -> subprocess.Popen[bytes]:
        with self._log.open("ab") as log:
            return self._popen(
                [*command.words, str(address)],
                cwd=ROOT,
                env={**os.environ, **_ONE_THREAD, **command.environment},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def _welcome(
        self, listener: socket.socket, ranks: int, library: Path, shared_bytes: int
    ) -> None:
        memory = os.memfd_create("meeting")
        os.ftruncate(memory, mmap.PAGESIZE + shared_bytes)
        places: dict[int, socket.socket] = {}
        while len(places) < ranks:
            connection = self._accepted(listener)
            rank = json.loads(connection.makefile("r").readline() or "{}").get("rank")
            if rank not in range(ranks) or rank in places:
                raise self._failure(f"a process called itself rank {rank} of {ranks}")
            places[rank] = connection
        for rank in range(ranks):
            words = {"ranks": ranks, "core": core_of(rank), "library": str(library)}
            words["shared_cores"] = are_shared(ranks)
            socket.send_fds(places[rank], [json.dumps(words).encode()], [memory])
            self._connections.append(places[rank])
            self._lines.append(places[rank].makefile("r"))
        os.close(memory)

    def _accepted(self, listener: socket.socket) -> socket.socket:
        """The next connection, unless the processes end first."""
        listener.settimeout(0.2)
        deadline = time.monotonic() + self._timeout
        while time.monotonic() < deadline:
            with contextlib.suppress(TimeoutError):
                connection, _ = listener.accept()
                connection.settimeout(self._timeout)
                return connection
            if any(process.poll() is not None for process in self._processes):
                raise self._failure("the ranks ended while they started")
        raise self._failure(f"the ranks did not start within {self._timeout:.0f} s")

    def _answers(self, word: str) -> list[Any]:
        answers = []
        for rank, lines in enumerate(self._lines):
            try:
                line = lines.readline()
            except TimeoutError:
                raise self._failure(f"rank {rank} was silent for {self._timeout:.0f} s") from None
            if not line:
                raise self._failure(f"rank {rank} has gone")
            answers.append(json.loads(line)[word])
        return answers

    def _failure(self, what: str) -> JobError:
        output = self._log.read_text(errors="replace").splitlines() if self._log.exists() else []
        return JobError("\n".join([what, *output[-20:]]))


#: A rank computes on the one core that it has; and Open MPI has root say twice that it means it.
_ONE_THREAD = {
    **dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1"),
    **dict.fromkeys(("OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM"), "1"),
    "TF_NUM_INTRAOP_THREADS": "1",
    "TF_NUM_INTEROP_THREADS": "2",
    "TF_CPP_MIN_LOG_LEVEL": "3",
    "TNT_TIMEOUT": "120",
    "CUDA_VISIBLE_DEVICES": "-1",
}
