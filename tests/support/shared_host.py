"""A host that several people use: this machine, with users of its own, in namespaces of Linux.

    with shared_host("alice", "bob") as host:
        host.run(["id"], user="alice")

Table of users, process numbers and shared memory are its own; network and files are this machine's.
So there are real users, and none of them is left behind. Where folders above Python or above the
clone are closed to others, as a home often is, they are open in here. All of it ends with this
process, however that ends: the host's first process reads from a pipe that only this one holds.
"""

import contextlib
import functools
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from tests.support import init_process
from tests.support.rank_pool import ROOT

_PROGRAMS = ("bash", "env", "nsenter", "setpriv", "unshare")
_FIRST_UID = 41_000  # of nobody on common systems
_INIT = """
set -e
mount --bind "$1/passwd" /etc/passwd
mount --bind "$1/group" /etc/group
mount -t tmpfs -o mode=1777 tmpfs /dev/shm
. "$1/open.sh"
echo ready
read -r _ || true
kill -KILL -1 2>/dev/null || true
rm -rf "$1"
"""


class SharedHost:
    """It, while it runs.

    Attributes:
        folder: with homes (``home/USER``, which others may read) and ``tmp``, where temporary
            files of all users go; removed with it.
        uids: of its users, by name.
    """

    def __init__(self, folder: Path, names: Sequence[str]) -> None:
        self.folder = folder
        self.uids = {name: _FIRST_UID + i for i, name in enumerate(names)}
        _write_users(folder, self.uids)
        (folder / "open.sh").write_text(_opening(folder))
        spaces = ("--mount", "--pid")
        self._init = init_process.begin("a shared host", spaces, _INIT, str(folder))

    def home(self, user: str) -> Path:
        """The folder of a user."""
        return self.folder / "home" / user

    def environment(self, user: str = "root") -> dict[str, str]:
        """What a user has after logging in."""
        home = self.folder / "root" if user == "root" else self.home(user)
        programs = f"{Path(sys.executable).parent}:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"
        return {
            "USER": user, "LOGNAME": user, "HOME": str(home), "SHELL": "/bin/bash",
            "LANG": "C.UTF-8", "PATH": programs, "TMPDIR": str(self.folder / "tmp"),
            "PYTHONDONTWRITEBYTECODE": "1",  # the clone is not these users'
        }  # fmt: skip

    def popen(self, command: Sequence[str], user: str = "root", **options: Any) -> subprocess.Popen:
        """As `subprocess.Popen`, there, in the user's home. When it is killed, the program gets
        SIGTERM."""
        return subprocess.Popen(self._words(command, user, options), **options)

    def run(
        self, command: Sequence[str], user: str = "root", **options: Any
    ) -> subprocess.CompletedProcess:
        """As `subprocess.run`, there, in the user's home."""
        return subprocess.run(self._words(command, user, options), **options)

    def ask(self, program: str, user: str, *arguments: str) -> str:
        """What a program in Python prints when a user runs it; it must succeed."""
        command = [sys.executable, "-c", program, *arguments]
        run = self.run(command, user, capture_output=True, text=True, timeout=180)
        assert run.returncode == 0, run.stdout + run.stderr
        return run.stdout

    def close(self) -> None:
        """Ends every process, and removes the folder."""
        init_process.end(self._init, 20)

    def _words(self, command: Sequence[str], user: str, options: dict[str, Any]) -> list[str]:
        if "input" not in options:
            options.setdefault("stdin", subprocess.DEVNULL)
        if options.get("env") is None:
            options["env"] = self.environment(user)
        folder = options.pop("cwd", None) or options["env"].get("HOME", "/")
        spaces = f"/proc/{self._init.pid}/ns"
        become = [f"--reuid={user}", f"--regid={user}", "--init-groups"] if user != "root" else []
        return [
            *("nsenter", f"--mount={spaces}/mnt", f"--pid={spaces}/pid_for_children"),
            *("setpriv", "--pdeathsig", "TERM", *become, "--"),
            *("env", "-C", str(folder), *command),
        ]


@contextlib.contextmanager
def shared_host(*users: str) -> Iterator[SharedHost]:
    """A host with these users. Where there can be none, `unavailable` says why."""
    folder = Path(tempfile.mkdtemp(prefix="tnt-shared-"))
    try:
        with contextlib.closing(SharedHost(folder, users)) as host:
            yield host
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@functools.cache
def unavailable() -> str:
    """Why there can be no such host here, as a sentence; empty where there can be."""
    if sys.platform != "linux":
        return "A host with users of its own needs Linux."
    if absent := [program for program in _PROGRAMS if shutil.which(program) is None]:
        return f"A host with users of its own needs {', '.join(absent)} (package util-linux)."
    if os.geteuid() != 0 or Path("/proc/self/uid_map").read_text().split()[2] == "1":
        return "this machine does not allow it: only root can be several users."
    words = ["unshare", "--mount", "--pid", "--fork", "--mount-proc"]
    run = subprocess.run([*words, "true"], capture_output=True, text=True)
    if run.returncode:
        return f"this machine does not allow it: {run.stderr.strip()}."
    with shared_host("somebody") as host:
        probe = [sys.executable, "-c", "import tnt_notebook.cluster"]
        run = host.run(probe, "somebody", capture_output=True, text=True)
    if run.returncode:
        return (
            f"Other users than root cannot run {sys.executable}: {run.stderr.strip()[-300:]}. Make "
            "its files readable: `chmod -R go+rX`."
        )
    return ""


def _write_users(folder: Path, uids: dict[str, int]) -> None:
    folder.chmod(0o755)
    for name, mode in (("home", 0o755), ("root", 0o700), ("tmp", 0o1777)):
        (folder / name).mkdir()
        (folder / name).chmod(mode)
    users, groups = Path("/etc/passwd").read_text(), Path("/etc/group").read_text()
    for name, uid in uids.items():
        home = folder / "home" / name
        home.mkdir(mode=0o755)  # as on many a site
        os.chown(home, uid, uid)
        users += f"{name}:x:{uid}:{uid}:{name}:{home}:/bin/bash\n"
        groups += f"{name}:x:{uid}:\n"
    (folder / "passwd").write_text(users)
    (folder / "group").write_text(groups)


def _opening(folder: Path) -> str:
    """Shell lines that lay an open folder over each closed one, with what is needed of it."""
    needed = [Path(sys.prefix), Path(sys.base_prefix), ROOT, folder, Path(tempfile.gettempdir())]
    link = Path(sys.executable)
    while link.is_symlink():
        link = link.parent / os.readlink(link)
        needed.append(link.parent)
    closed: dict[Path, set[Path]] = {}
    for path in {*(path.absolute() for path in needed), *(path.resolve() for path in needed)}:
        parents = [p for p in reversed(path.parents) if not p.stat().st_mode & 1]
        if parents:
            closed.setdefault(parents[0], set()).add(path)
    lines, aside = [], folder / "aside"
    for above, paths in closed.items():
        places = {aside / str(i): path for i, path in enumerate(sorted(paths))}
        for place, path in places.items():
            lines += [f"mkdir -p {_q(place)}", f"mount --bind {_q(path)} {_q(place)}"]
        lines.append(f"mount -t tmpfs -o mode=0755 tmpfs {_q(above)}")
        for place, path in places.items():
            lines += [f"mkdir -p {_q(path)}", f"mount --bind {_q(place)} {_q(path)}"]
            lines += [f"umount {_q(place)}"]
    return "\n".join(lines) + "\n"


def _q(path: Path) -> str:
    return shlex.quote(str(path))
