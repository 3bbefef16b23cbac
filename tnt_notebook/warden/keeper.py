"""The first of a warden's two processes: keeps a cluster as long as somebody owns it, or a lease
lasts, and ends it then."""

from __future__ import annotations

import functools
import json
import math
import os
import select
import signal
import socket
import struct
import time
from contextlib import suppress
from typing import Any

from tnt_notebook.warden.ending import end
from tnt_notebook.warden.protocol import (
    BUSY_S,
    FIRST_OWNER_S,
    LONGEST_LINE,
    LONGEST_S,
    LOOK_S,
    MOST_CLIENTS,
    Plan,
    Stage,
    State,
)
from tnt_notebook.warden.second import Second


def keep(plan: Plan) -> int:
    """Keeps the cluster of a plan to its end; 1 when something of it could not be ended. Prints
    ``ready`` once it listens."""
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(plan["socket"])
    listener.listen(128)  # who finds no room waits
    warden = _Warden(plan, listener)
    print("ready", flush=True)
    return _keep(warden)


class _Owner:
    """Who is connected; also known by process, as a child forked by it keeps the socket open."""

    def __init__(self, connection: socket.socket, name: str) -> None:
        self.connection = connection
        self.name = name
        size = struct.calcsize("3i")
        credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size)
        self.pid = struct.unpack("3i", credentials)[0]
        self.since = time.time()
        try:
            self.process = os.pidfd_open(self.pid)
        except OSError:  # an old kernel: the connection alone tells
            self.process = -1

    def close(self) -> None:
        with suppress(OSError):
            self.connection.shutdown(socket.SHUT_RDWR)  # the second process holds it, too
        self.connection.close()
        self.let_process()

    def let_process(self) -> None:
        if self.process >= 0:
            os.close(self.process)

    def described(self) -> dict[str, Any]:
        return {"pid": self.pid, "name": self.name, "since": self.since}


class _Warden:
    """
    Args:
        listener: bound, and listening.
        owner, free_since, keep_s: as the warden before has known them.
    """

    def __init__(
        self,
        plan: Plan,
        listener: socket.socket,
        owner: _Owner | None = None,
        free_since: float | None = None,
        keep_s: float = FIRST_OWNER_S,
    ) -> None:
        self.plan = plan
        self.owner = owner
        self.clients: dict[int, socket.socket] = {}
        if owner is not None:
            self.clients[owner.connection.fileno()] = owner.connection
        self.heard: dict[int, bytes] = {}  # of a client, the line that is not complete yet
        self.free_since = time.monotonic() if free_since is None else free_since
        self.keep_s = keep_s
        self.asked_to_end: socket.socket | None = None
        self.listener = listener
        self.second = Second(functools.partial(_go_on, listener))
        self.begin_second()

    def begin_second(self) -> None:
        """Begins the process that goes on if this one ends."""
        self.second.begin(self.state(), self._owners_connection, self.clients.values())

    def tell_second(self, state: Stage = "watching") -> None:
        """Tells the second process what has changed."""
        self.second.tell(self.state(state), self._owners_connection)

    def state(self, state: Stage = "watching") -> State:
        """What the second process is told."""
        owner = None if self.owner is None else self.owner.name
        return {
            "plan": self.plan, "state": state, "owner": owner,
            "free_since": self.free_since, "keep_s": self.keep_s,
        }  # fmt: skip

    @property
    def _owners_connection(self) -> socket.socket | None:
        return None if self.owner is None else self.owner.connection

    def ends_in_s(self) -> float | None:
        """Seconds until the lease is over; None while somebody owns the cluster."""
        if self.owner is not None:
            return None
        return max(0.0, self.free_since + self.keep_s - time.monotonic())

    def busy(self) -> bool:
        """A fit goes on: the rank that leads it touches a file; without an owner not for ever."""
        if self.owner is None and time.monotonic() - self.free_since > self.plan["fit_s"]:
            return False
        try:
            return time.time() - os.stat(self.plan["busy"]).st_mtime < BUSY_S
        except OSError:
            return False

    def watch(self, waking: int) -> None:
        """Returns when the cluster is to end."""
        while self.asked_to_end is None:
            left = self.ends_in_s()
            if left == 0.0:
                if not self.busy():
                    return
                left = 5.0
            self.second.wake()
            watched = [self.listener.fileno(), waking, self.second.fileno(), *self.clients]
            if self.owner is not None and self.owner.process >= 0:
                watched.append(self.owner.process)
            poll = select.poll()  # select would fail at descriptors above 1023
            for number in watched:
                poll.register(number, select.POLLIN)
            for ready, _ in poll.poll(1000 * min(LOOK_S if left is None else left, LOOK_S)):
                if ready == waking:
                    return
                if ready == self.second.fileno():
                    self.second.reap()
                    self.begin_second()
                    break  # the numbers of descriptors may mean others now
                if ready == self.listener.fileno():
                    self._accept()
                elif ready in self.clients:
                    self._listen(self.clients[ready])
                elif self.owner is not None and ready == self.owner.process:
                    self._lose_owner()

    def _accept(self) -> None:
        try:
            client, _ = self.listener.accept()
        except OSError:  # it has gone again
            return
        client.setblocking(False)  # nobody keeps the others waiting
        self.clients[client.fileno()] = client
        if len(self.clients) > MOST_CLIENTS:
            owner = self._owners_connection
            self._forget(next(c for c in self.clients.values() if c is not owner))

    def _listen(self, client: socket.socket) -> None:
        number = client.fileno()
        try:
            piece = client.recv(4096)
        except BlockingIOError:
            return
        except OSError:
            piece = b""
        *lines, rest = (self.heard.get(number, b"") + piece).split(b"\n")
        for line in lines:
            self._serve(client, line)
            if self.clients.get(number) is not client or self.asked_to_end is not None:
                return
        self.heard[number] = rest
        if not piece or len(rest) > LONGEST_LINE:
            self._forget(client)

    def _serve(self, client: socket.socket, line: bytes) -> None:
        try:
            said = json.loads(line)
        except (ValueError, RecursionError):
            said = None
        if not isinstance(said, dict):
            self._forget(client)
            return
        if said.get("end"):
            self.asked_to_end = client
            return
        if said.get("own"):
            answer = self._own(client, str(said.get("name", "")), bool(said.get("force")))
        elif isinstance(said.get("keep_s"), int | float):
            self.plan["keep_s"] = _bounded(said["keep_s"])
            self.tell_second()
            answer = {"keep_s": self.plan["keep_s"]}
        else:
            answer = {
                "owner": self.owner and self.owner.described(),
                "ends_in_s": self.ends_in_s(),
                "busy": self.busy(),
                "keep_s": self.plan["keep_s"],
            }
        text = json.dumps(answer).encode() + b"\n"
        try:
            if client.send(text) < len(text):
                self._forget(client)
        except OSError:  # it has gone, or does not read
            self._forget(client)

    def _own(self, client: socket.socket, name: str, force: bool) -> dict[str, Any]:
        if self.owner is not None and self.owner.connection is not client:
            if not force:
                return {"owner": self.owner.described()}
            self._drop(self.owner.connection.fileno())
            self.owner.close()
        elif self.owner is not None:
            self.owner.let_process()
        self.owner = _Owner(client, name)
        self.tell_second()
        return {"owner": None}

    def _forget(self, client: socket.socket) -> None:
        if self.owner is not None and self.owner.connection is client:
            self._lose_owner()
            return
        self._drop(client.fileno())
        client.close()

    def _drop(self, number: int) -> None:
        self.clients.pop(number, None)
        self.heard.pop(number, None)

    def _lose_owner(self) -> None:
        assert self.owner is not None
        self._drop(self.owner.connection.fileno())
        self.owner.close()
        self.owner = None
        self.free_since = time.monotonic()
        self.keep_s = self.plan["keep_s"]
        self.tell_second()


def _go_on(listener: socket.socket, state: State, connection: socket.socket | None) -> int:
    """In the second process: the first has ended."""
    if state["state"] == "ending":
        return _end(state["plan"], connection)
    owner = None if connection is None else _Owner(connection, state["owner"] or "")
    return _keep(_Warden(state["plan"], listener, owner, state["free_since"], state["keep_s"]))


def _keep(warden: _Warden) -> int:
    """Keeps the cluster until its end; 1 when something of it could not be ended."""
    waking, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.set_wakeup_fd(wake)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: None)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        warden.watch(waking)
    finally:
        warden.tell_second("ending")
        status = _end(warden.plan, warden.asked_to_end)
        warden.tell_second("done")
    return status


def _end(plan: Plan, asking: socket.socket | None) -> int:
    """Ends the cluster, and says to whoever has asked for it what is left."""
    left = end(plan)
    if asking is not None:
        try:
            asking.settimeout(5)
            asking.sendall(json.dumps({"left": left}).encode() + b"\n")
        except OSError:
            pass  # it did not wait; the exit status tells nobody else
    return 1 if left else 0


def _bounded(seconds: float) -> float:
    """A lease of so many seconds, as far as there are such."""
    try:
        asked = float(seconds)
    except OverflowError:  # an integer that no float holds
        return LONGEST_S if seconds > 0 else 0.0
    return 0.0 if math.isnan(asked) else min(max(0.0, asked), LONGEST_S)
