"""PBS, LSF and Grid Engine for the tests: their commands are played, and their jobs are real.

    with batch("pbs") as system, pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", system.path)
        subprocess.run(["qsub", "job.sh"])

A job runs on this machine, in the background, with the variables that the real system sets. Its
hosts but the first are names for this machine, which the system's own agent (pbs_tmrsh, blaunch,
qrsh) brings programs to. All of it ends with this process, however that ends: see `supervisor.py`.
"""

import contextlib
import json
import os
import platform
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.support import batch_shim
from tests.support.supervisor import Supervisor
from tnt_notebook.cluster.launch.ports import free_ports, undialled


class Batch:
    """One that runs.

    Attributes:
        path: the search path for programs, with its commands first.
        queues: that it has; the first is the default.
    """

    queues = ("normal", "long")

    def __init__(self, name: str, folder: Path) -> None:
        self.name = name
        self._folder = folder
        self._ports = free_ports(14, *(undialled() or (10_000, 30_000)))
        self.path = f"{folder}/bin{os.pathsep}{os.environ['PATH']}"
        self.hold(None)

    def hold(self, why: str | None) -> None:
        """From now on jobs wait, for this reason; with None they run."""
        hosts = {platform.node(): 1, "node-2": 1}
        config = {"queues": self.queues, "hosts": hosts, "ports": self._ports, "held": why or ""}
        beside = self._folder / "config.new"
        beside.write_text(json.dumps(config))
        beside.rename(self._folder / "config.json")

    def jobs(self) -> list[dict[str, Any]]:
        """What it knows of each job, the first is number 1: state, hosts, how it ended, ..."""
        return batch_shim.jobs(self._folder)

    def job(self, number: str) -> dict[str, Any]:
        """One of them."""
        return self.jobs()[int(number) - 1]

    def expire(self, number: str) -> None:
        """The job's time is over."""
        (self._folder / f"{number}.end").write_text("time")

    def reached(self) -> list[str]:
        """The hosts that programs were begun on through the agent."""
        log = self._folder / "remote.log"
        return log.read_text().split() if log.exists() else []


@contextlib.contextmanager
def batch(name: str) -> Iterator[Batch]:
    """Plays a batch system: ``pbs``, ``lsf`` or ``sge``."""
    folder = Path(tempfile.mkdtemp(prefix="tnt-batch-"))
    shim = [sys.executable, "-S", "-E", batch_shim.__file__, str(folder), name]
    _commands(folder / "bin", shim, batch_shim.COMMANDS[name])
    if name == "sge":  # where Open MPI looks for it
        _commands(folder / "bin" / "lx-amd64", shim, ("qrsh",))
    system = Batch(name, folder)
    with contextlib.closing(Supervisor(folder / "log", folder)) as supervisor:
        supervisor.start(*shim, "serve")
        yield system


def _commands(folder: Path, shim: list[str], names: tuple[str, ...]) -> None:
    folder.mkdir(parents=True)
    words = " ".join(f'"{word}"' for word in shim)
    for name in names:
        command = folder / name
        command.write_text(f'#!/bin/sh\nexec {words} {name} "$@"\n')
        command.chmod(0o755)
