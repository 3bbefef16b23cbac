"""The daemons of the tests' Slurm: munged, slurmctld and one slurmd a node, and who ends them."""

import contextlib
import os
import secrets
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from tests.support.hosts import Host
from tests.support.shared_host import SharedHost
from tests.support.slurm_conf import Node, write_configuration
from tests.support.supervisor import Supervisor
from tests.support.waiting import eventually

PATH = os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/sbin", "/sbin"])
HURRY = "hurry"  # a file, until whose modification time slurmctld looks at time limits each second
_FREEZER = Path("/sys/fs/cgroup/freezer")  # where control groups are of version 1


@contextlib.contextmanager
def running(
    controller: Node, nodes: Sequence[Node], hosts: Sequence[Host | SharedHost]
) -> Iterator[Path]:
    """Daemons that have been started, but need not answer yet.

    Args:
        controller: where slurmctld and munged run.
        hosts: that of the controller and those of the nodes; none: all run on this machine.

    Yields:
        Their folder, which is removed.
    """
    folder = Path(tempfile.mkdtemp(prefix="tnt-slurm-"))
    cgroup = _FREEZER / folder.name
    with contextlib.ExitStack() as stack:

        def supervisor(popen: Callable[..., subprocess.Popen], *owns: Path) -> Supervisor:
            # Not the tests' environment: what a job's is comes from its submission.
            plain = {"PATH": PATH, "SLURM_CONF": f"{folder}/slurm.conf"}
            keeper = Supervisor(folder / "log" / "daemons", *owns, popen=popen, env=plain)
            return stack.enter_context(contextlib.closing(keeper))

        # It ends last: it removes files and groups of those on hosts.
        here = supervisor(subprocess.Popen, folder, cgroup)
        first, *others = [supervisor(host.popen) for host in hosts] or [here] * (1 + len(nodes))
        _fill(folder)
        write_configuration(folder, controller, nodes, _made(cgroup))
        first.start(*_munged(folder / "munge"))
        eventually((folder / "munge" / "socket").exists)
        first.start("env", *_hurried(folder), "slurmctld", "-D")
        for node, other in zip(nodes, others, strict=True):
            other.start("slurmd", "-D", "-N", node.name, "-f", f"{folder}/slurm.conf")
        yield folder


def _fill(folder: Path) -> None:
    for name in ("log", "munge", "spool", "state", "tmp"):
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
