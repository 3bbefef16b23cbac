"""Cleans up after a cluster when its owner, the notebook kernel, ends in whatever way.

A process of its own, in its own session. The kernel holds the write end of the pipe that is this
program's stdin; when the kernel lets go of it, or dies, every process of the cluster is ended and
the run folders are removed. Processes are found by a variable in their environment, so that
reparented ones (nannies, engines, what cells started) are found as well.

Run as ``python -I -S supervisor.py CLUSTER_ID OWNER_PID FOLDER...``: imports stay light.
"""

import os
import select
import shutil
import signal
import sys
import time

MARKER = "TNT_CLUSTER_ID"
GRACE_S = 2.0  # between SIGTERM and SIGKILL
GIVE_UP_S = 20.0  # a process in uninterruptible sleep cannot be ended by anybody


def processes_of(cluster_id: str) -> list[int]:
    """Pids of all living processes whose environment carries this cluster's id."""
    entry = f"{MARKER}={cluster_id}".encode()
    found = []
    for name in os.listdir("/proc"):
        if not name.isdigit() or int(name) == os.getpid():
            continue
        try:
            with open(f"/proc/{name}/environ", "rb") as file:
                environment = file.read()
        except OSError:  # gone meanwhile, or another user's
            continue
        if entry in environment.split(b"\0"):
            found.append(int(name))
    return found


def end_processes(cluster_id: str) -> list[int]:
    """Ends all processes of a cluster, politely first; returns those that are still there."""
    begin = time.monotonic()
    asked: set[int] = set()
    while left := processes_of(cluster_id):
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
    """Removes run folders; one that is already gone is fine."""
    for folder in folders:
        if os.path.basename(folder).startswith("tnt-"):
            shutil.rmtree(folder, ignore_errors=True)


def _signal(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        pass  # ended by itself between the look and the signal


def _wait_for_end_of(owner: int) -> None:
    """Returns when the owner has closed the pipe, has ended, or a SIGTERM asks for the end."""
    waking, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.set_wakeup_fd(wake)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: None)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    watched = [0, waking]
    try:
        # A child that the kernel forked without exec keeps the pipe open: watch the owner too.
        watched.append(os.pidfd_open(owner))
    except OSError:
        if os.getppid() != owner:
            return
    select.select(watched, [], [])


def main(arguments: list[str]) -> int:
    """Waits for the owner's end, then cleans up; 1 when something could not be ended."""
    cluster_id, owner, *folders = arguments
    _wait_for_end_of(int(owner))
    left = end_processes(cluster_id)
    remove(folders)
    return 1 if left else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
