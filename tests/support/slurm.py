"""A real Slurm for the tests: Debian's slurmctld, slurmd and munged, with a folder of their own.

    with slurm_here() as slurm:                        # on this machine, in its network
        subprocess.run(["sbatch", "job.sh"], env={**os.environ, **slurm.environment})

    with hosts(3) as rack, slurm_on(rack) as slurm:    # node1: login node; node2, node3: compute
        slurm.run(["srun", "-N2", "hostname"])

Several can stand side by side. All of it ends with this process, however that ends: daemons, jobs,
and everything that jobs have started belong to a supervisor that reads from a pipe which only this
process holds. No accounting daemon runs: `Slurm.job` tells how a job ended.
"""

import contextlib
import functools
import os
import re
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from tests.support.hosts import Rack
from tests.support.shared_host import SharedHost
from tests.support.slurm_conf import Node
from tests.support.slurm_daemons import HURRY, PATH, running
from tests.support.waiting import eventually
from tnt_notebook.cluster.launch.ports import free_ports, undialled

_PROGRAMS = ("munged", "sbatch", "scontrol", "slurmctld", "slurmd", "squeue")


class Job(NamedTuple):
    """A job as squeue shows it."""

    name: str
    state: str  #: ``PENDING``, ``RUNNING``, ``COMPLETING``, ``CANCELLED``, ``TIMEOUT``, ...


class Slurm:
    """One that runs.

    Attributes:
        folder: with its configuration, state, logs (``log/``), and TMPDIR of jobs
            (``tmp/NODE``); removed with it.
        environment: what its commands, such as sbatch, need to find it.
        nodes: the names of its compute nodes.
    """

    def __init__(self, folder: Path, nodes: Sequence[str], run: Callable) -> None:
        self.folder = folder
        self.environment = {"SLURM_CONF": str(folder / "slurm.conf")}
        self.nodes = tuple(nodes)
        self._run = run

    def run(self, command: Sequence[str], **options: Any) -> subprocess.CompletedProcess:
        """As `subprocess.run`, with Slurm's environment, on the login node."""
        outside = {**os.environ} if options.get("env") is None else options["env"]
        # Where the tests run in a job themselves, these commands do not belong to it.
        outside = {k: v for k, v in outside.items() if not k.startswith(("SLURM_", "SLURMD_"))}
        return self._run(command, **{**options, "env": {**outside, **self.environment}})

    def submit(self, script: str, *options: str, **more: Any) -> int:
        """Gives the lines of a shell script to sbatch, and returns the number of the job.

        Args:
            options: of sbatch. Without others, the job runs, and writes its output, in `folder`.
            more: as `run` takes them, such as ``env``.

        Raises:
            AssertionError: it was refused; with all that sbatch says.
        """
        words = ("sbatch", "--parsable", f"--chdir={self.folder}", *options)
        printed = self._ask(*words, input=f"#!/bin/bash\n{script}\n", **more)
        return int(printed.partition(";")[0])

    def output(self, number: int) -> str:
        """What a job has written so far; nothing before it runs."""
        path = Path(self.job(number)["StdOut"])
        return path.read_text() if path.exists() else ""

    def jobs(self) -> dict[int, Job]:
        """All jobs that Slurm knows, also those that ended within the last 300 s, by number."""
        lines = self._ask("squeue", "--noheader", "--all", "--states=all", "-o", "%A %j %T")
        rows = (line.split() for line in lines.splitlines())
        return {int(number): Job(name, state) for number, name, state in rows}

    def job(self, number: int) -> dict[str, str]:
        """All that ``scontrol show job`` says: ``JobState``, ``Reason``, ``ExitCode``, ...

        Raises:
            AssertionError: it knows no such job, or does no longer.
        """
        text = self._ask("scontrol", "show", "job", "--oneliner", str(number))
        return dict(re.findall(r"(?:^|\s)([A-Za-z]\w*(?:[:/]\w+)*)=(\S*)", text))

    def wait(self, number: int, *states: str, seconds: float = 20.0) -> None:
        """Returns when the job is in one of these states, or fails after the seconds."""
        eventually(lambda: self.jobs()[number].state in states, seconds)

    def cancel(self, *numbers: int) -> None:
        """As a user does, with scancel."""
        self._ask("scancel", *map(str, numbers))

    def drain(self, node: str) -> None:
        """Jobs that run there go on, and no other starts."""
        self._ask("scontrol", "update", f"nodename={node}", "state=drain", "reason=test")

    def resume(self, node: str) -> None:
        """Jobs may start there again."""
        self._ask("scontrol", "update", f"nodename={node}", "state=resume")

    def expire(self, number: int, seconds: int = 2) -> None:
        """Moves a job's time limit to so many seconds from now: Slurm takes none that is past.

        By itself Slurm looks at time limits every 30 s, here about every second until the limit
        has come. The signal that a job has asked for (``--signal``) comes by the new limit. After
        it, processes have 3 s (KillWait) between SIGTERM and SIGKILL.
        """
        self._ask("scontrol", "update", f"jobid={number}", f"endtime=now+{seconds}")
        now = time.time()
        hurry = self.folder / HURRY
        hurry.touch()
        os.utime(hurry, times=(now, max(hurry.stat().st_mtime, now + seconds + 5)))

    def start_soon(self, number: int) -> None:
        """Starts a job that waits for a time to come, as one does that was queued again (10 s).

        In 2 s: on a node that has ended it within the same second, it would not be let in.
        """
        self._ask("scontrol", "update", f"jobid={number}", "starttime=now+2")

    def log(self) -> str:
        """The last lines of all its daemons' logs."""
        files = sorted((self.folder / "log").iterdir())
        tails = {f.name: f.read_text(errors="replace").splitlines()[-20:] for f in files}
        return "\n".join(f"--- {name}\n" + "\n".join(tail) for name, tail in tails.items())

    def _ask(self, *command: str, **options: Any) -> str:
        options = {"capture_output": True, "text": True, "timeout": 30, **options}
        run = self.run(command, **options)
        if run.returncode:
            raise AssertionError(f"{' '.join(command)}: status {run.returncode}: {run.stderr}")
        return run.stdout


@contextlib.contextmanager
def slurm_here(nodes: int = 2, shared: SharedHost | None = None) -> Iterator[Slurm]:
    """Slurm on this machine, in its network: ``node1``, ``node2``, ... are all this machine.

    Args:
        shared: where all of it runs, so that its users can submit jobs.

    Raises:
        AssertionError: it did not start. Where there can be none, `unavailable` says why.
    """
    host = socket.gethostname().partition(".")[0]
    port, *ports = free_ports(nodes + 1, *(undialled() or (10_000, 30_000)))
    controller = Node("controller", host, "127.0.0.1", port)
    table = [Node(f"node{i}", host, "127.0.0.1", port) for i, port in enumerate(ports, 1)]
    places = [shared] * (1 + nodes) if shared else []
    with running(controller, table, places) as folder:
        run = shared.run if shared else subprocess.run
        yield _ready(Slurm(folder, [node.name for node in table], run))


@contextlib.contextmanager
def slurm_on(rack: Rack) -> Iterator[Slurm]:
    """Slurm over emulated hosts: slurmctld on the first, the login node, a slurmd on every other.

    Args:
        rack: of at least two hosts.

    Raises:
        AssertionError: as `slurm_here`.
    """
    login = Node(rack[0].name, rack[0].name, rack[0].address, 6817)
    table = [Node(host.name, host.name, host.address, 6818) for host in rack[1:]]
    with running(login, table, rack) as folder:
        yield _ready(Slurm(folder, [node.name for node in table], rack[0].run))


@functools.cache
def unavailable() -> str:
    """Why there can be no Slurm here, as a sentence; empty where there can be."""
    if sys.platform != "linux":
        return "Slurm needs Linux."
    absent = [program for program in _PROGRAMS if shutil.which(program, path=PATH) is None]
    if absent:
        return f"Slurm needs {', '.join(absent)} (packages slurm-wlm and munge)."
    if Path("/proc/self/setgroups").read_text() == "deny\n":
        return "this machine does not allow it: Slurm's daemons have to leave their groups."
    return ""


def _ready(slurm: Slurm) -> Slurm:
    """Returns when jobs can start on all nodes."""

    def idle() -> bool:
        look = ["sinfo", "--noheader", "-N", "-p", "main", "-o", "%T"]
        run = slurm.run(look, capture_output=True, text=True, timeout=30)
        return run.stdout.split() == ["idle"] * len(slurm.nodes)

    try:
        eventually(idle, 20)
    except AssertionError:
        raise AssertionError(f"Slurm did not start within 20 s:\n{slurm.log()}") from None
    return slurm
