"""Keeps a cluster, and cleans up after it: a process of its own, in a session of its own.

Whoever owns the cluster, a notebook kernel, is connected to the socket in its folder. When nobody
has been for as long as the lease says, or when the owner asks for the end, every process of the
cluster is ended, its job is cancelled, and its folders are removed. Processes are found by a
variable in their environment, so that reparented ones (nannies, engines, what cells started) are
found as well.

Two processes do so, since one may be killed: the second knows who owns the cluster, and holds the
same sockets. When the first ends before it has done its work, the second goes on with it, and
neither owner nor cluster notice. There are two again then, also when the second has ended.

On other hosts there is a smaller one: it waits until the last rank there has ended, and cleans up.

Run as ``python -I -S warden.py`` with its plan as a line of JSON on stdin, on other hosts as
``python -I -S warden.py CLUSTER_ID HOME SEGMENTS TEMPORARY``: imports stay light. A line
of JSON each way over the socket::

    {"own": true, "name": "notebook.ipynb", "force": false}    -> {"owner": null} or who it is
    {"ask": true}                                              -> {"owner": ..., "ends_in_s": ...}
    {"keep_s": 3600}                                           -> {"keep_s": 3600}
    {"end": true}                                              -> {"left": []} once all is gone
"""

from __future__ import annotations

import json
import math
import os
import select
import shutil
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

MARKER = "TNT_CLUSTER_ID"
ENGINES_MARKER = "TNT_ENGINES_ID"  # of mpiexec, engines and what these start
GRACE_S = 2.0  # between SIGTERM and SIGKILL
GIVE_UP_S = 20.0  # a process in uninterruptible sleep cannot be ended by anybody
FIRST_OWNER_S = 60.0  # a kernel that was killed before it could connect
BUSY_S = 120.0  # since a fit has said that it goes on
LINGER_S = 30.0  # on other hosts, for ranks that begin late or are started again
RANKS = "ranks"  # the folder in which ranks of another host leave a file each, named by pid
ASKED_S = 10.0  # for a job's script to end by itself
CANCEL_S = 30.0  # for a batch system to do what it is told
LONGEST_S = 24 * 365 * 3600.0  # of a lease
LOOK_S = 2.0  # whether the other of two processes was stopped
_LONGEST = 1 << 16  # of a line
_MOST = 64  # connections; each notebook needs one, and each list of clusters for a moment


def pids_count_in() -> str:
    """The start of a kernel, and the namespace, in which process numbers mean what they mean here.
    Hosts of one name may share a home, and containers a host's memory."""
    with open("/proc/sys/kernel/random/boot_id") as file:
        return f"{file.read().strip()} {os.readlink('/proc/self/ns/pid')}"


def processes_of(cluster_id: str, marker: str = MARKER) -> list[int]:
    """Pids of all living processes whose environment carries this cluster's id."""
    entry = f"{marker}={cluster_id}".encode()
    numbers = [int(name) for name in os.listdir("/proc") if name.isdigit()]
    return [pid for pid in numbers if pid != os.getpid() and _has(pid, entry)]


def _has(pid: int, entry: bytes) -> bool:
    """Whether a process has this entry in its environment."""
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            return entry in file.read().split(b"\0")
    except OSError:  # gone meanwhile, or another user's
        return False


def end_processes(cluster_id: str, marker: str = MARKER) -> list[int]:
    """Ends all processes of a cluster, politely first; returns those that are still there."""
    begin = time.monotonic()
    asked: set[int] = set()
    while left := processes_of(cluster_id, marker):
        waited = time.monotonic() - begin
        if waited > GIVE_UP_S:
            break
        for pid in left:
            if waited > GRACE_S:
                _signal(pid, signal.SIGKILL)
            elif pid not in asked:
                asked.add(pid)
                _signal(pid, signal.SIGTERM)
        time.sleep(0.02)
    return left


def remove(folders: list[str]) -> None:
    """Removes folders of a cluster; one that is already gone is fine."""
    for folder in folders:
        if os.path.basename(folder).startswith("tnt-"):
            shutil.rmtree(folder, ignore_errors=True)


def end_job(ask: list[str], cancel: list[str], listing: list[str]) -> bool:
    """Ends the job of a cluster and waits until it is gone; whether it is.

    Args:
        ask: a command that asks the job's script to end by itself, so that it can clean up on all
            its hosts; it fails where the job does not run.
        cancel: the command that cancels the job.
        listing: a command that prints something as long as the job is there.
    """
    begin = time.monotonic()
    asked = bool(ask) and _run(ask)[0]
    while True:
        waited = time.monotonic() - begin
        if not asked or waited > ASKED_S:
            _run(cancel)
        if not "".join(_run(listing)[1:]).strip():
            return True
        if waited > ASKED_S + CANCEL_S:
            return False
        time.sleep(0.5)


def end(plan: Mapping[str, Any]) -> list[int | str]:
    """Ends a cluster and removes its folders; returns what could not be ended.

    Args:
        plan: id and folders; commands, each empty where there is none: ask, cancel and listing of
            a job, and sweep, which cleans up on other hosts, where nobody could outlive the ranks.
    """
    left: list[int | str] = []
    if plan["cancel"] and not end_job(plan["ask"], plan["cancel"], plan["listing"]):
        left.append(" ".join(plan["cancel"]))
    left += end_processes(plan["id"])
    if plan["sweep"]:
        _run(plan["sweep"])
    remove(plan["folders"])
    return left


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

    def described(self) -> dict:
        return {"pid": self.pid, "name": self.name, "since": self.since}


class _Warden:
    """
    Args:
        listener: bound, and listening.
        owner: as the warden before has known it, and its connection.
    """

    def __init__(self, plan: dict, listener: socket.socket, owner: _Owner | None = None) -> None:
        self.plan = plan
        self.owner = owner
        self.clients: dict[int, socket.socket] = {}
        if owner is not None:
            self.clients[owner.connection.fileno()] = owner.connection
        self.heard: dict[int, bytes] = {}  # of a client, the line that is not complete yet
        self.free_since = time.monotonic()
        self.keep_s = FIRST_OWNER_S
        self.asked_to_end: socket.socket | None = None
        self.listener = listener
        self.second, self.second_pid = socket.socket(socket.AF_UNIX), 0
        self.begin_second()

    def begin_second(self) -> None:
        """Forks the process that goes on if this one ends."""
        self.second.close()
        self.second, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        first = os.getpid()
        self.second_pid = os.fork()
        if self.second_pid == 0:
            try:
                self.second.close()
                owner = [os.dup(self.owner.connection.fileno())] if self.owner else []
                for client in self.clients.values():  # an end of theirs is for the first to see
                    client.close()
                os._exit(_be_second(first, other, self.listener, self.state(), owner))
            finally:
                os._exit(1)  # what the first has begun is not to be ended here
        other.close()
        self.second.setblocking(False)

    def state(self, state: str = "watching") -> dict[str, Any]:
        """All that the second process needs to go on, beside the connection of the owner."""
        return {
            "plan": self.plan, "state": state, "owner": self.owner and self.owner.name,
            "free_since": self.free_since, "keep_s": self.keep_s,
        }  # fmt: skip

    def tell_second(self, state: str = "watching") -> None:
        """Tells the second process what has changed.

        Args:
            state: ``watching``, ``ending`` the cluster, or ``done``.
        """
        text = json.dumps(self.state(state)).encode()
        connections = [self.owner.connection.fileno()] if self.owner else []
        try:
            socket.send_fds(self.second, [text], connections)
        except OSError:  # it has ended, or does not listen: another one will
            with suppress(ProcessLookupError):
                os.kill(self.second_pid, signal.SIGKILL)

    def look_after_second(self) -> None:
        """It has ended."""
        os.waitpid(self.second_pid, 0)
        self.begin_second()

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
            _wake(self.second_pid)
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
                    self.look_after_second()
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
        if len(self.clients) > _MOST:
            owner = self.owner and self.owner.connection
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
        if not piece or len(rest) > _LONGEST:
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

    def _own(self, client: socket.socket, name: str, force: bool) -> dict:
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


def _be_second(
    first: int,
    told: socket.socket,
    listener: socket.socket,
    said: dict[str, Any],
    owner: list[int],
) -> int:
    """Waits for the end of the first process, and goes on where it was.

    Args:
        said: the first's state.
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
            text, connections, _, _ = socket.recv_fds(told, _LONGEST, 1)
        except TimeoutError:
            _wake(first)
            continue
        if not text:
            break
        for number in owner:
            os.close(number)
        said, owner = json.loads(text), connections
    if said["state"] == "done":
        return 0
    connection = socket.socket(fileno=owner[0]) if owner else None
    if connection is not None:
        connection.setblocking(False)
    if said["state"] == "ending":
        return _end(said["plan"], connection)
    known = _Owner(connection, said["owner"]) if connection is not None else None
    warden = _Warden(said["plan"], listener, known)
    warden.free_since, warden.keep_s = said["free_since"], said["keep_s"]
    return _keep(warden)


def _wake(pid: int) -> None:
    """Has a process go on that somebody has stopped: nobody would do its work."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            state = file.read().rpartition(")")[2].split()[0]
        if state == "T":
            os.kill(pid, signal.SIGCONT)
    except OSError:
        pass  # it has ended, of which its socket tells


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


def _end(plan: dict, asking: socket.socket | None) -> int:
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


def _run(command: list[str]) -> tuple[bool, str, str]:
    """Whether a command succeeds, what it prints, and its errors if it does not."""
    try:
        run = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=CANCEL_S
        )
    except (OSError, subprocess.SubprocessError) as error:
        return False, "", str(error)
    return (True, run.stdout, "") if run.returncode == 0 else (False, run.stdout, run.stderr)


def _signal(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        pass  # ended by itself between the look and the signal


def keep_host(cluster_id: str, home: str, segments: str, temporary: str) -> int:
    """Waits on a host for the end of its ranks, and cleans up; 1 when something stays.

    Args:
        home: the folder that all hosts see; where it is gone the cluster has been stopped.
    """
    # A batch system asks all processes at once; when the ranks have ended there is work to do here.
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    seen = time.monotonic()
    while time.monotonic() - seen < LINGER_S:
        if ranks_on_host(cluster_id, segments):
            seen = time.monotonic()
        elif not os.path.isdir(home):
            break
        time.sleep(0.5)
    left = end_processes(cluster_id)
    remove([segments, temporary])
    return 1 if left else 0


def ranks_on_host(cluster_id: str, segments: str) -> list[int]:
    """Pids of living ranks that have left their pid in a folder of another host."""
    entry = f"{MARKER}={cluster_id}".encode()
    try:
        names = os.listdir(os.path.join(segments, RANKS))
    except FileNotFoundError:
        return []
    return [int(name) for name in names if name.isdigit() and _has(int(name), entry)]


def main() -> int:
    """Keeps the cluster of the plan on stdin; 1 when something of it could not be ended."""
    if len(sys.argv) > 1:
        return keep_host(*sys.argv[1:])
    plan = json.loads(sys.stdin.readline())
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(plan["socket"])
    listener.listen(128)  # who finds no room waits
    warden = _Warden(plan, listener)
    print("ready", flush=True)
    return _keep(warden)


if __name__ == "__main__":
    sys.exit(main())
