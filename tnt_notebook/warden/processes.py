"""Processes of a cluster, found by a variable in their environment: so reparented ones (nannies,
engines, what cells started) are found as well."""

from __future__ import annotations

import os
import signal
import time

from tnt_notebook.warden.protocol import GIVE_UP_S, GRACE_S, MARKER, RANKS


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


def ranks_on_host(cluster_id: str, segments: str) -> list[int]:
    """Pids of living ranks that have left their pid in a folder of another host."""
    entry = f"{MARKER}={cluster_id}".encode()
    try:
        names = os.listdir(os.path.join(segments, RANKS))
    except FileNotFoundError:
        return []
    return [int(name) for name in names if name.isdigit() and _has(int(name), entry)]


def wake(pid: int) -> None:
    """Has a process go on that somebody has stopped: nobody would do its work."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            state = file.read().rpartition(")")[2].split()[0]
        if state == "T":
            os.kill(pid, signal.SIGCONT)
    except OSError:
        pass  # it has ended, of which its socket tells


def _signal(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        pass  # ended by itself between the look and the signal
