"""The second of a warden's two processes: goes on if the first ends before its work is done."""

from __future__ import annotations

import json
import os
import signal
import socket
from collections.abc import Callable, Iterable
from contextlib import suppress

from tnt_notebook.warden.processes import wake
from tnt_notebook.warden.protocol import LONGEST_LINE, LOOK_S, State


class Second:
    """As the first sees it.

    Args:
        go_on: what it does once it is alone, with the last state that it was told, unless that is
            done, and the connection of the owner; gives its exit status.
    """

    def __init__(self, go_on: Callable[[State, socket.socket | None], int]) -> None:
        self._go_on = go_on
        self._socket = socket.socket(socket.AF_UNIX)
        self._pid = 0

    def fileno(self) -> int:
        """What is readable once it has ended."""
        return self._socket.fileno()

    def begin(
        self, state: State, owner: socket.socket | None, clients: Iterable[socket.socket]
    ) -> None:
        """Forks it."""
        self._socket.close()
        self._socket, told = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        first = os.getpid()
        self._pid = os.fork()
        if self._pid == 0:
            try:
                self._socket.close()
                connection = [os.dup(owner.fileno())] if owner is not None else []
                for client in clients:  # an end of theirs is for the first to see
                    client.close()
                os._exit(_live(first, told, state, connection, self._go_on))
            finally:
                os._exit(1)  # what the first has begun is not to be ended here
        told.close()
        self._socket.setblocking(False)

    def tell(self, state: State, owner: socket.socket | None) -> None:
        """Tells it what has changed."""
        connection = [owner.fileno()] if owner is not None else []
        try:
            socket.send_fds(self._socket, [json.dumps(state).encode()], connection)
        except OSError:  # it has ended, or does not listen: another one will
            with suppress(ProcessLookupError):
                os.kill(self._pid, signal.SIGKILL)

    def wake(self) -> None:
        """Has it go on if somebody has stopped it."""
        wake(self._pid)

    def reap(self) -> None:
        """It has ended."""
        os.waitpid(self._pid, 0)


def _live(
    first: int,
    told: socket.socket,
    state: State,
    owner: list[int],
    go_on: Callable[[State, socket.socket | None], int],
) -> int:
    """In that process: waits for the end of the first.

    Args:
        owner: the descriptor of its owner's connection, if it has one.
    """
    for request in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(request, signal.SIG_IGN)  # the first does what they ask for
    signal.set_wakeup_fd(-1)
    with open(os.devnull, "r+b") as nothing:  # who has started the first waits for its word
        os.dup2(nothing.fileno(), 0)
        os.dup2(nothing.fileno(), 1)
    told.settimeout(LOOK_S)
    while True:
        try:
            text, connections, _, _ = socket.recv_fds(told, LONGEST_LINE, 1)
        except TimeoutError:
            wake(first)
            continue
        if not text:
            break
        for number in owner:
            os.close(number)
        state, owner = json.loads(text), connections
    if state["state"] == "done":
        return 0
    connection = socket.socket(fileno=owner[0]) if owner else None
    if connection is not None:
        connection.setblocking(False)
    return go_on(state, connection)
