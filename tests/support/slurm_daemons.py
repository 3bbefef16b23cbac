"""The daemons of the tests' Slurm: munged, slurmctld and one slurmd a node, and who ends them."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from tests.support.hosts import Host
from tests.support.shared_host import SharedHost
from tests.support.slurm_conf import Node, write_configuration
from tests.support.waiting import eventually

PATH = os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/sbin", "/sbin"])
HURRY = "hurry"  # a file, until whose modification time slurmctld looks at time limits each second
_FREEZER = Path("/sys/fs/cgroup/freezer")  # where control groups are of version 1


@contextlib.contextmanager
def running(
    controller: Node,
    nodes: Sequence[Node],
    cpus: int,
    gpus: int,
    hosts: Sequence[Host | SharedHost] = (),
) -> Iterator[tuple[Path, Callable[[], None]]]:
    """Daemons that have been started, but need not answer yet.

    Args:
        controller: where slurmctld and munged run.
        hosts: that of the controller and those of the nodes; none: all run on this machine.

    Yields:
        Their folder, and a function that ends them, and removes it, before this does.
    """
    folder = Path(tempfile.mkdtemp(prefix="tnt-slurm-"))
    cgroup = _FREEZER / folder.name
    try:
        supervisors = [_Supervisor(subprocess.Popen, folder, folder, cgroup)]
    except OSError:
        folder.rmdir()
        raise

    def close() -> None:
        # First those on hosts, whose files and groups the first one removes.
        while supervisors:
            supervisors.pop().close()

    try:
        supervisors += [_Supervisor(host.popen, folder) for host in hosts]
        first, *others = supervisors[1:] or supervisors * (1 + len(nodes))
        _fill(folder)
        write_configuration(folder, controller, nodes, cpus, gpus, _made(cgroup))
        first.start(*_munged(folder / "munge"))
        eventually((folder / "munge" / "socket").exists)
        first.start("env", *_hurried(folder), "slurmctld", "-D")
        for node, supervisor in zip(nodes, others, strict=True):
            configuration = f"{folder}/nodes/{node.name}/slurm.conf"
            supervisor.start("slurmd", "-D", "-N", node.name, "-f", configuration)
        yield folder, close
    finally:
        close()


class _Supervisor:
    """A process that keeps daemons for us: `supervisor.py`."""

    def __init__(self, popen: Callable[..., subprocess.Popen], folder: Path, *owns: Path) -> None:
        program = Path(__file__).with_name("supervisor.py")
        self._process = popen(
            [sys.executable, "-S", "-E", str(program), f"{folder}/log/daemons", *map(str, owns)],
            stdin=subprocess.PIPE,
            text=True,
            cwd="/",
            # Not the tests': what a job's environment is comes from its submission.
            env={"PATH": PATH, "SLURM_CONF": f"{folder}/slurm.conf"},
            start_new_session=True,
        )

    def start(self, *words: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(words) + "\n")
        self._process.stdin.flush()

    def close(self) -> None:
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # its host has crashed
            self._process.stdin.close()
        self._process.wait(30)


def _fill(folder: Path) -> None:
    for name in ("log", "munge", "nodes", "spool", "state", "tmp"):
        (folder / name).mkdir()
    for path in (folder, folder / "munge"):
        path.chmod(0o711)  # jobs may be of other users
    key = folder / "munge" / "key"
    key.touch(0o600)
    key.write_bytes(secrets.token_bytes(128))


def _made(cgroup: Path) -> Path | None:
    """The control group, if this machine lets us have one in which Slurm can freeze jobs."""
    try:
        cgroup.mkdir()
        os.chown(cgroup, 0, 0)  # as Slurm will
    except OSError:
        return None
    return cgroup


def _hurried(folder: Path) -> list[str]:
    """Variables for slurmctld that let `Slurm.expire` be quick; none without a C compiler."""
    if shutil.which("cc") is None:
        return []
    library = folder / "hurry.so"
    source = Path(__file__).with_name("slurm_hurry.c")
    subprocess.run(["cc", "-O2", "-shared", "-fPIC", source, "-o", library], check=True)
    return [f"LD_PRELOAD={library}", f"SLURM_HURRY={folder / HURRY}"]


def _munged(folder: Path) -> list[str]:
    files = [f"--{name}-file={folder}/{name}" for name in ("key", "pid", "log", "seed")]
    options = ["--foreground", "--force", "--num-threads=2", f"--socket={folder}/socket"]
    return ["munged", *options, *files]
