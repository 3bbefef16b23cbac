"""The process beside a rank that relays signals to it, and tells the controller of its end.

It is ipyparallel's, but forked when the rank begins, and not started as a new Python when it
registers: that one would first import what the rank has imported already, and the rank would wait.
And in the rank's log it says that the rank has ended, so that one that is cut off can be told from
one that died, and whether the host ran out of memory meanwhile.
"""

from __future__ import annotations

import os
import pickle
import re
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from ipyparallel.engine.nanny import KernelNanny

from tnt_notebook.errors import ClusterError
from tnt_notebook.words import NO_MEMORY, ended

_MOST_FILES = 1024  # more than any that are open when a rank begins


class _Nanny(KernelNanny):
    """Which processes of a host were killed for lack of memory is not said to everybody, but how
    many since its start is."""

    def __init__(self, **about: Any) -> None:
        self._killed = _killed_for_memory()
        super().__init__(**about)

    def finish(self) -> None:
        """The rank has ended: told before the controller is."""
        if not self._finish_called:
            host, killed = os.uname().nodename, _killed_for_memory() - self._killed
            memory = f" Since it began, {killed} {NO_MEMORY}." if killed > 0 else ""
            os.write(1, f"{ended(self.pid)} on {host}.{memory}\n".encode())
        super().finish()


def _killed_for_memory() -> int:
    """How many processes Linux has killed on this host, or for the limit of a container or job."""
    try:
        found = re.search(r"^oom_kill (\d+)$", Path("/proc/vmstat").read_text(), re.MULTILINE)
    except OSError:
        return 0
    return int(found[1]) if found else 0


@dataclass(frozen=True)
class Nanny:
    """A nanny that waits to be told whose it is. It ends when these pipes close."""

    ask: IO[bytes]
    said: IO[bytes]

    def begin(self, **about: Any) -> str:
        """Tells it about the engine: the arguments of ipyparallel's, but for its pipe.

        Returns:
            Where the engine's control socket is to connect to.
        """
        pickle.dump(about | {"pid": os.getpid()}, self.ask)
        self.ask.close()
        address = self.said.readline().decode().strip()
        if not address:
            raise ClusterError("The process that relays signals to this rank has ended.")
        return address


def fork() -> Nanny:
    """Forks it. To be called where standard output is that of the rank, and before MPI begins."""
    asked, ask = os.pipe()
    said, say = os.pipe()
    if os.fork() == 0:
        _live(asked, say)
    os.close(asked)
    os.close(say)
    return Nanny(os.fdopen(ask, "wb"), os.fdopen(said, "rb"))


def _live(asked: int, say: int) -> None:
    """In the nanny; does not return."""
    try:
        os.setsid()  # signals of a terminal are not for it
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        # Of the rest the launcher waits for the end, or the rank for its own.
        first, second = sorted((asked, say))
        for low, high in ((3, first), (first + 1, second), (second + 1, _MOST_FILES)):
            os.closerange(low, high)
        with os.fdopen(asked, "rb") as file:
            about = file.read()
        if about:  # else the rank has ended before it came so far
            _Nanny.main(**pickle.loads(about), pipe=os.fdopen(say, "w", buffering=1))
    finally:
        os._exit(0)
