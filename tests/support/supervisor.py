"""A process that keeps daemons, and ends them and all that they started when its owner ends.

    python supervisor.py LOG [FOLDER [CGROUP]]

Each line that it reads is a daemon to start: a JSON list of words. At the end of its input, which
comes with the end of the owner however that ends, it kills every process that came of them, also
those that left their session or whose parent has gone: it is the reaper of them all. So it does
with the processes of the control group, wherever they came from. Then it removes the shared memory
that these had open, the group and the folder.
"""

import contextlib
import ctypes
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

_PR_SET_CHILD_SUBREAPER = 36
_SHARED_MEMORY = "/dev/shm/"
_BOUND_S = 20.0


class Supervisor:
    """One, as its owner has it.

    Args:
        log: for what daemons write.
        owns: the folder, and the control group.
        popen: begins it; as `subprocess.Popen`, which does so here.
    """

    def __init__(
        self, log: Path, *owns: Path, popen: Callable = subprocess.Popen, env: dict | None = None
    ) -> None:
        self._process = popen(
            [sys.executable, "-S", "-E", __file__, str(log), *map(str, owns)],
            stdin=subprocess.PIPE, text=True, cwd="/", env=env, start_new_session=True,
        )  # fmt: skip

    def start(self, *words: str) -> None:
        """Starts a daemon."""
        self._process.stdin.write(json.dumps(words) + "\n")
        self._process.stdin.flush()

    def close(self) -> None:
        """Ends it, and what it keeps."""
        with contextlib.suppress(BrokenPipeError):  # its host has crashed
            self._process.stdin.close()
        self._process.wait(30)


def main(log: str, folder: str | None = None, cgroup: str | None = None) -> None:
    if ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "no child subreaper")
    signal.signal(signal.SIGCHLD, lambda *_: _reap())
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())
    try:
        for line in sys.stdin:
            _start(json.loads(line), log)
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        deadline = time.monotonic() + _BOUND_S
        for name in _end_all(cgroup, deadline):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(name)
        for group in _groups(cgroup):
            group.rmdir()
        # Elsewhere, daemons may be about to end, and still be writing.
        while folder and os.path.exists(folder) and time.monotonic() < deadline:
            shutil.rmtree(folder, ignore_errors=True)


def _start(words: list[str], log: str) -> None:
    streams = [
        (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
        (os.POSIX_SPAWN_OPEN, 1, log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644),
        (os.POSIX_SPAWN_DUP2, 1, 2),
    ]
    plain = (signal.SIGPIPE, signal.SIGXFSZ)  # which Python ignores, and children would, too
    options = {"file_actions": streams, "setsid": True, "setsigdef": plain}
    os.posix_spawnp(words[0], words, os.environ, **options)


def _reap() -> None:
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def _end_all(cgroup: str | None, deadline: float) -> set[str]:
    """Kills until nothing is left; what they had open of shared memory, by name."""
    segments: set[str] = set()
    while (pids := _descendants() + _members(cgroup)) and time.monotonic() < deadline:
        for pid in pids:
            segments |= _shared_memory(pid)
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.01)  # a killed process needs a moment, and may just have forked
        _reap()
    return segments


def _groups(cgroup: str | None) -> list[Path]:
    """The group, if it exists, and those in it, innermost first."""
    return [Path(folder) for folder, _, _ in os.walk(cgroup, topdown=False)] if cgroup else []


def _members(cgroup: str | None) -> list[int]:
    files = (group / "cgroup.procs" for group in _groups(cgroup))
    return [int(pid) for file in files for pid in file.read_text().split()]


def _descendants() -> list[int]:
    children: dict[int, list[int]] = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            with contextlib.suppress(OSError):
                # After the name, which is in parentheses and may hold any character.
                fields = Path("/proc", entry, "stat").read_text().rpartition(")")[2].split()
                children.setdefault(int(fields[1]), []).append(int(entry))
    found = list(children.get(os.getpid(), []))
    for pid in found:
        found += children.get(pid, [])
    return found


def _shared_memory(pid: int) -> set[str]:
    with contextlib.suppress(OSError):
        lines = Path(f"/proc/{pid}/maps").read_text().splitlines()
        names = {line.split(maxsplit=5)[5] for line in lines if _SHARED_MEMORY in line}
        return {name for name in names if name.startswith(_SHARED_MEMORY)}
    return set()


if __name__ == "__main__":
    main(*sys.argv[1:])
