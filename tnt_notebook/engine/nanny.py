"""The process above a rank: it relays signals to it, waits for its end, and tells of that.

It is ipyparallel's nanny, but what mpiexec has started: the rank is forked from it when it begins,
before MPI does. So it is told how the rank has ended, and says so in the rank's log, and whether
Linux ran out of memory just then; and so it ends in the one way in which Open MPI's daemons leave
the others alone, however the rank has: a process that exits with a status takes from all the
connection to their daemon, with which they would go on without it; one that is killed does not.
"""

from __future__ import annotations

import os
import pickle
import re
import signal
import threading
from collections import deque
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import zmq
from ipyparallel.engine.nanny import KernelNanny
from tornado.ioloop import PeriodicCallback

from tnt_notebook import control_group, rank_end
from tnt_notebook.errors import ClusterError

#: Between two looks at whom Linux has killed, and how many of them are kept: those of ten seconds.
_LOOK_MS, _LOOKS = 500.0, 20

#: What a terminal, mpiexec or a batch system sends to all processes of a rank is for the rank.
_FOR_RANK = (
    signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2, signal.SIGALRM,
    signal.SIGTSTP,
)  # fmt: skip

#: Where a control group says how many of its processes Linux has killed; of cgroups 1 and 2.
_COUNTERS = ("memory.oom_control", "memory.events")


@dataclass(frozen=True)
class Nanny:
    """A rank's way to its nanny, which waits to be told of the engine. It ends with the rank."""

    ask: IO[bytes]
    said: IO[bytes]

    def begin(self, **about: Any) -> str:
        """Tells it about the engine: the arguments of ipyparallel's, but for its pipe.

        Returns:
            Where the engine's control socket is to connect to.
        """
        about |= {"pid": os.getpid()}
        pickle.dump(about, self.ask)
        self.ask.close()
        address = self.said.readline().decode().strip()
        if not address:
            raise ClusterError("The process that relays signals to this rank has ended.")
        threading.Thread(target=self._outlive, args=(about,), name="tnt-nanny", daemon=True).start()
        return address

    def _outlive(self, about: dict[str, Any]) -> None:
        """Somebody has killed the nanny: for MPI this rank has died, and nobody else says so."""
        self.said.read()
        _write(about["pid"], "the process above it was killed")
        _Nanny(**about, pipe=None).say_that_it_ends()
        os.kill(os.getpid(), signal.SIGKILL)


def fork() -> Nanny:
    """Goes on in a child of this process, which is its nanny from now on. To be called where
    standard output is the rank's log, before MPI, and before threads that the rank needs."""
    asked, ask = os.pipe()
    said, say = os.pipe()
    rank = os.fork()
    if rank:
        os.close(ask)
        os.close(said)
        _live(rank, asked, say)  # does not return
    os.close(asked)
    os.close(say)
    return Nanny(os.fdopen(ask, "wb"), os.fdopen(said, "rb"))


def _live(rank: int, asked: int, say: int) -> None:
    """In the nanny, to its end."""
    try:
        for number in _FOR_RANK:
            signal.signal(number, signal.SIG_IGN)
        killed = _KilledForMemory()
        with os.fdopen(asked, "rb") as file:
            about = file.read()
        if about:  # else the rank has ended before it came so far
            pipe = os.fdopen(say, "w", buffering=1)
            _Nanny.main(**pickle.loads(about), pipe=pipe, killed=killed)
        else:
            _tell(rank, killed)
    finally:
        os.kill(os.getpid(), signal.SIGKILL)


class _Nanny(KernelNanny):
    def __init__(self, killed: _KilledForMemory | None = None, **about: Any) -> None:
        super().__init__(**about)
        self._killed = killed

    async def start(self) -> None:
        await super().start()
        assert self._killed is not None
        PeriodicCallback(self._killed.look, _LOOK_MS).start()
        threading.Thread(target=self._wait, daemon=True).start()

    def wait_for_parent_thread(self) -> None:
        """ipyparallel's waits for somebody else's child, and not to be told how it ends."""

    def pipe_handler(self, fd: Any, events: int) -> None:
        """The rank has closed its files: it has ended, or is another program now."""
        self.loop.remove_handler(fd)
        with suppress(ProcessLookupError):  # it was waited for already
            os.kill(self.pid, signal.SIGKILL)  # who has ended has a status already, and keeps it

    def _wait(self) -> None:
        assert self._killed is not None
        _tell(self.pid, self._killed)
        self.loop.add_callback(self.finish)

    def say_that_it_ends(self) -> None:
        """Tells the controller, from the rank itself."""
        self.context = zmq.Context()
        self.notify_exit()
        self.context.term()


def _tell(rank: int, killed: _KilledForMemory) -> None:
    """Waits for the end of a rank, and says in its log how it has ended."""
    end = os.waitid(os.P_PID, rank, os.WEXITED)
    assert end is not None
    how = _exit(end.si_status) if end.si_code == os.CLD_EXITED else _signal(end.si_status)
    memory = killed.lately() if how == _signal(signal.SIGKILL) else 0
    _write(rank, how, memory)


def _write(rank: int, how: str, killed: int = 0) -> None:
    os.write(1, f"{rank_end.written(rank, os.uname().nodename, how, killed)}\n".encode())


def _exit(status: int) -> str:
    return f"exit status {status}"


def _signal(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # one of the real-time ones
        return f"signal {number}"


class _KilledForMemory:
    """How many processes beside this one Linux has killed because a host, a container or a job ran
    out of memory: who they were is not said to everybody."""

    def __init__(self) -> None:
        # A kill is counted before the process ends, which takes seconds where there is much memory
        # to give back, or the host is busy.
        self._seen: deque[tuple[Path, int]] = deque([_count()], maxlen=_LOOKS)

    def look(self) -> None:
        """To be called now and then."""
        self._seen.append(_count())

    def lately(self) -> int:
        """How many in the last ten seconds."""
        (group, count), (first, before) = _count(), self._seen[0]
        # In a group that it has come into since then nobody was killed before.
        return count - before * (first == group)


def _count() -> tuple[Path, int]:
    """Where Linux counts whom it kills beside this process, and how many that are."""
    file = _counter()
    found = re.search(r"^oom_kill (\d+)$", file.read_text(), re.MULTILINE)
    return file, int(found[1]) if found else 0


def _counter() -> Path:
    """The counter of this process's control group; of the host where there is none."""
    return next(control_group.files(_COUNTERS), Path("/proc/vmstat"))
