"""The lease a notebook kernel holds on the processes and files of a cluster.

As long as the kernel lives and holds the lease they stay. When it ends without having ended them,
the warden keeps them as long as was agreed, for a kernel that attaches, and then ends them.
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import struct
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

from tnt_notebook import warden
from tnt_notebook.errors import ClusterError
from tnt_notebook.warden import Plan

_ANSWER_S = 10.0
_END_S = warden.ASKED_S + warden.CANCEL_S + warden.GIVE_UP_S + 40


class Lease:
    """Held from before the first process starts, or from :meth:`take`, until :meth:`release`.

    Args:
        plan: of the warden.
        connection: to the warden.
        process: of the warden, if this kernel has started it.
    """

    def __init__(
        self, plan: Plan, connection: socket.socket, process: subprocess.Popen[str] | None = None
    ) -> None:
        self._plan, self._connection, self._process = plan, connection, process

    @classmethod
    def begin(cls, plan: Plan) -> Lease:
        """Starts a warden, and is its first owner."""
        process = subprocess.Popen(
            [sys.executable, "-I", "-S", warden.PROGRAM],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            start_new_session=True,  # a Ctrl-C in the terminal is not for it
            cwd="/",
        )
        assert process.stdin is not None and process.stdout is not None
        with process.stdin, process.stdout:
            process.stdin.write(json.dumps(plan) + "\n")
            process.stdin.flush()
            if process.stdout.readline() != "ready\n":
                warden.remove(plan["folders"])
                raise ClusterError(
                    f"The process that keeps the cluster did not start (exit {process.wait(10)})."
                )
        lease = cls(plan, _connected(plan["socket"]), process)
        lease._own(force=False)
        return lease

    @classmethod
    def take(cls, plan: Plan, force: bool = False) -> Lease:
        """The lease of a cluster that nobody owns.

        Args:
            force: takes it from an owner that lives.

        Raises:
            ClusterError: somebody owns it, or its warden has ended.
        """
        try:
            lease = cls(plan, _connected(plan["socket"]))
        except OSError as error:
            raise ClusterError(
                f"Nobody keeps cluster {plan['id']} any more: {error.strerror}. "
                f"%tnt_cluster stop {plan['id']} removes what is left of it."
            ) from None
        try:
            lease._own(force)
        except BaseException:
            lease.let_go()
            raise
        return lease

    def hold(self) -> bool:
        """Whether this process owns the cluster still; False after another notebook has taken it.

        Both processes that keep it may have been killed at once: then others are started.
        """
        if self._is_open:
            return True
        if self._connection.fileno() < 0:  # let go
            return False
        if status(self._plan) is not None or not Path(self._plan["socket"]).exists():
            return False
        Path(self._plan["socket"]).unlink()
        again = Lease.begin(self._plan)
        self._connection.close()
        if self._process is not None:
            self._process.wait()  # killed
        self._connection, self._process = again._connection, again._process
        return True

    @property
    def taken(self) -> bool:
        """Whether another process owns the cluster now. The warden lives then."""
        told = None if self._is_open else status(self._plan)
        return told is not None and told["owner"] is not None

    @property
    def _is_open(self) -> bool:
        """Whether the warden has not closed the connection, which it does to an owner before."""
        try:
            readable, _, _ = select.select([self._connection], [], [], 0)
            return not readable or self._connection.recv(1, socket.MSG_PEEK) != b""
        except (OSError, ValueError):  # closed here
            return False

    def keep(self, seconds: float) -> None:
        """From now on the lease is for so long after its owner's end."""
        _asked(self._connection, {"keep_s": seconds})

    def let_go(self) -> None:
        """From now on the cluster lives as long as the lease says."""
        self._connection.close()

    def release(self) -> None:
        """Ends every process of the cluster, and its job, and removes its folders.

        Raises:
            ClusterError: something could not be ended.
        """
        _wake(self._connection)
        try:
            answer = _asked(self._connection, {"end": True}, _END_S)
            left = list(answer["left"])
        except (OSError, ValueError, KeyError):
            # Whatever became of the warden, nothing may stay behind.
            left = warden.end(self._plan)
        self._connection.close()
        if self._process is not None:
            try:
                self._process.wait(5)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        if left:
            raise ClusterError(
                f"The cluster has ended, except for {', '.join(map(str, left))}. A process that "
                "survives SIGKILL waits for a device or a file system, and a job that stays "
                "belongs to the batch system: ask the machine's operator."
            )

    def _own(self, force: bool) -> None:
        answer = _asked(self._connection, {"own": True, "name": name(), "force": force})
        if owner := answer["owner"]:
            raise ClusterError(
                f"Cluster {self._plan['id']} belongs to {described(owner)}. Stop it there, or take "
                f"it: %tnt_cluster attach {self._plan['id']} --force"
            )


def status(plan: Plan) -> dict[str, Any] | None:
    """What the warden of a cluster says: owner, ends_in_s, busy, keep_s; None if it has ended."""
    try:
        with _connected(plan["socket"]) as connection:
            return _asked(connection, {"ask": True})
    except (OSError, ValueError):
        return None


def name() -> str:
    """What this process is called when it owns a cluster: its notebook, where that is known."""
    notebook = os.environ.get("JPY_SESSION_NAME")
    return Path(notebook).name if notebook else Path(sys.argv[0]).name or "python"


def described(owner: dict[str, Any]) -> str:
    """An owner in words."""
    return f"{owner['name']} (process {owner['pid']})"


def _wake(connection: socket.socket) -> None:
    """Has the processes of a warden go on, if somebody has stopped both at once."""
    size = struct.calcsize("3i")
    with suppress(OSError):
        peer = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size)
        os.killpg(struct.unpack("3i", peer)[0], signal.SIGCONT)  # it leads the group of the two


def _connected(address: str) -> socket.socket:
    connection = socket.socket(socket.AF_UNIX)
    try:
        # With Python's own timeout a full queue of the warden would be an error at once.
        wait = struct.pack("ll", int(_ANSWER_S), 0)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, wait)
        connection.connect(address)
    except BaseException:
        connection.close()
        raise
    return connection


def _asked(
    connection: socket.socket, question: dict[str, Any], timeout_s: float = _ANSWER_S
) -> dict[str, Any]:
    connection.settimeout(timeout_s)
    connection.sendall(json.dumps(question).encode() + b"\n")
    answer = b""
    while not answer.endswith(b"\n"):
        piece = connection.recv(4096)
        if not piece:
            raise ConnectionResetError("the warden has ended")
        answer += piece
    return json.loads(answer)
