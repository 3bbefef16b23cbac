"""Runs functions of the tests on real MPI ranks.

One MPI job of `SIZE` ranks lives as long as the test session; a test asks for n of them. Starting
ranks and importing TensorFlow takes seconds, a job that is there answers in milliseconds.
"""

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import psutil

from tnt_notebook.cluster.launch.ports import open_mpi_ports

SIZE = 4
#: A rank that has more memory is started anew before the tests of another file: TensorFlow keeps
#: what it has traced, and four ranks would have all of a small machine's.
MOST_BYTES = 5 << 29
#: Seconds until all ranks have loaded TensorFlow, on two cores that other tests keep busy.
START_S = 400
ROOT = Path(__file__).parents[2]


class RankError(AssertionError):
    """A function raised on at least one rank; the text holds all tracebacks."""


class RankPool:
    """An MPI job that executes functions.

    Args:
        folder: where the job's output goes.
        environment: variables of the ranks, beside those that ranks of tests have anyway.
    """

    def __init__(self, folder: Path, environment: Mapping[str, str] | None = None) -> None:
        self._environment = environment or {}
        self._log = folder / "ranks.log"
        self._address = folder / "ranks.sock"
        self._process: subprocess.Popen[bytes] | None = None
        self._connections: list[Connection] = []  # one to each rank
        self._options: dict[int, dict[str, Any]] = {}  # of the latest special world of n ranks
        self._module = ""  # of the latest function

    def run(self, n: int, function: Callable[..., Any], *args: Any, **how: Any) -> list:
        """What ``function(*args)`` returns on each of n ranks. Arguments as of `outcomes`.

        Raises:
            RankError: with the tracebacks of all ranks on which it raised.
        """
        outcomes = self.outcomes(n, function, *args, **how)
        failed = [(rank, text) for rank, (how, text) in enumerate(outcomes) if how == "raised"]
        if failed:
            raise RankError("\n".join(f"--- rank {rank} ---\n{text}" for rank, text in failed))
        return [value for _, value in outcomes]

    def outcomes(
        self,
        n: int,
        function: Callable[..., Any],
        *args: Any,
        timeout: float = 400,
        world: dict[str, Any] | None = None,
    ) -> list[tuple[str, Any]]:
        """Calls ``function(*args)`` on n ranks, in a world of that size.

        Args:
            function: of a module that the ranks can import; it may return anything that pickles.
            timeout: seconds until the job is killed and the test fails.
            world: arguments for a world other than the plain one: ``transport``, ``lanes``, and
                ``nodes``, see `rank_nodes`.

        Returns:
            Of each rank ``("returned", value)`` or ``("raised", traceback)``.
        """
        if function.__module__ != self._module and self._has_grown():
            self.stop()
        self._module = function.__module__
        if self._process is None or self._process.poll() is not None:
            self._start()
        deadline = time.monotonic() + timeout
        try:
            renew = world is not None and self._options.get(n) != world
            job = (n, function.__module__, function.__qualname__, args, world, renew)
            for connection in self._connections[:n]:
                connection.send(job)
            if world is not None:
                self._options[n] = world
            return [_receive(connection, deadline) for connection in self._connections[:n]]
        except (TimeoutError, ConnectionError, EOFError) as error:
            self.stop()
            raise RankError(
                f"{function.__qualname__} on {n} ranks did not end within {timeout} s "
                f"({type(error).__name__}). Output of the ranks:\n{self.output()}"
            ) from None
        except BaseException:  # pytest's own time-out: the next test must not get this one's answer
            self.stop()
            raise

    def _has_grown(self) -> bool:
        if self._process is None or self._process.poll() is not None:
            return False
        ranks = psutil.Process(self._process.pid).children(recursive=True)
        return any(rank.memory_info().rss > MOST_BYTES for rank in ranks)

    def output(self) -> str:
        """The last lines that the ranks printed."""
        return "\n".join(self._log.read_text(errors="replace").splitlines()[-60:])

    def stop(self) -> None:
        """Ends the job and everything it has started."""
        for connection in self._connections:
            connection.close()
        if self._process is not None and self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGTERM)
            try:
                self._process.wait(10)
            except subprocess.TimeoutExpired:
                os.killpg(self._process.pid, signal.SIGKILL)
                self._process.wait()
        self._process, self._connections = None, []

    def _start(self) -> None:
        self._address.unlink(missing_ok=True)
        self._options.clear()
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(str(self._address))
        listener.listen(SIZE)
        command = [*mpiexec(SIZE), sys.executable, "-m", "tests.support.rank_server"]
        with self._log.open("ab") as log:
            # What one test measured is not to be another's, nor the user's.
            cache = {"XDG_CACHE_HOME": str(self._log.parent)}
            self._process = subprocess.Popen(
                [*command, str(self._address)], cwd=ROOT, start_new_session=True,
                env={**rank_environment(), **cache, **self._environment},
                stdin=subprocess.DEVNULL, stdout=log, stderr=log,
            )  # fmt: skip
        deadline = time.monotonic() + START_S
        by_rank: dict[int, Connection] = {}
        try:
            while len(by_rank) < SIZE:
                listener.settimeout(max(0.01, deadline - time.monotonic()))
                connection = Connection(listener.accept()[0].detach())
                by_rank[_receive(connection, deadline)] = connection
        except (TimeoutError, EOFError):
            self.stop()
            raise RankError(f"the MPI job did not start:\n{self.output()}") from None
        finally:
            listener.close()
        self._connections = [by_rank[rank] for rank in range(SIZE)]


def mpiexec(n: int) -> list[str]:
    """The command that starts n ranks here, on as many cores as there are."""
    beside_python = Path(sys.executable).with_name("mpiexec")
    program = str(beside_python) if beside_python.exists() else shutil.which("mpiexec")
    if program is None:
        raise RuntimeError("no mpiexec beside the Python interpreter or on PATH")
    return [program, "--oversubscribe", "--bind-to", "none", "-n", str(n)]


def rank_environment() -> dict[str, str]:
    """This environment, with what ranks need: one compute thread each, and root allowed."""
    return {
        **os.environ, **open_mpi_ports(), "OMPI_ALLOW_RUN_AS_ROOT": "1",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "OMP_NUM_THREADS": "1",
        "TF_NUM_INTRAOP_THREADS": "1", "TF_NUM_INTEROP_THREADS": "2", "TF_CPP_MIN_LOG_LEVEL": "3",
        "CUDA_VISIBLE_DEVICES": "-1",
    }  # fmt: skip


def _receive(connection: Connection, deadline: float) -> Any:
    if not connection.poll(max(0.0, deadline - time.monotonic())):
        raise TimeoutError
    return connection.recv()
