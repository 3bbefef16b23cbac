"""Batch systems as values: what their scripts ask for, and how they are asked about a job."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from tnt_notebook.cluster.options import Request

_ASK_S = 30.0
#: Seconds before the end of a job when its ranks are told.
NOTICE_S = 120


@dataclass(frozen=True)
class Job:
    """What a batch system says of a job.

    Attributes:
        state: ``pending``, ``running``, ``ending`` while the system ends what is left of it,
            ``ended``, or ``unknown`` where it could not be asked.
        why: of a pending job what it waits for; of one that ends, how; else what is wrong.
        more: when it is expected to begin, its place in the queue, or the time that is left.
    """

    state: Literal["pending", "running", "ending", "ended", "unknown"]
    why: str = ""
    more: str = ""

    def __str__(self) -> str:
        states = {"ended": "has ended", "unknown": "is in an unknown state"}
        said = states.get(self.state, f"is {self.state}")
        return (
            said + (f": {self.why}" if self.why else "") + (f" ({self.more})" if self.more else "")
        )


@dataclass(frozen=True)
class System:
    """A batch system.

    Attributes:
        title: as people call it.
        engines: ipyparallel's launcher.
        submit: the command.
        variable: of the environment, which says that this is inside of an allocation.
        directives: lines of the script's head, of a request, a job's name and an output file. The
            system must not run the job a second time: that is for the notebook to ask for.
        prepare: lines of the script before Open MPI's mpiexec; MPICH's finds out itself.
        mpi_arguments: of Open MPI's mpiexec in the script, as shell text.
        cancel: the command that cancels a job, by its name.
        listing: a command that prints something as long as there is a job of that name, or where
            that cannot be said.
        look: what is known of a job, by its id.
        nodes: addresses of nodes that may run ranks, as far as they are known beforehand.
        check: raises a ClusterError where it cannot be asked for something.
        tasks: for how many ranks an allocation is, as its environment says.
        writes_at_once: whether the job's output file has what the job writes before it ends.
        ask: a command that sends SIGTERM to the script of a running job of that name, and to no
            other process of it; it fails where none runs. None where there is no such command.
        each_node: a command that runs another one once on each node of the job that it is in; empty
            where that is left to MPI.
        warns: whether it sends the script SIGUSR1 before the end of a job, as the directives ask.
    """

    title: str
    engines: type[Any]
    submit: str
    variable: str
    directives: Callable[[Request, str, str], list[str]]
    prepare: Callable[[Request], list[str]]
    mpi_arguments: str
    cancel: Callable[[str], list[str]]
    listing: Callable[[str], list[str]]
    look: Callable[[str], Job]
    nodes: Callable[[], list[str]]
    tasks: Callable[[Mapping[str, str]], int | None]
    check: Callable[[Request], None] = lambda _: None
    writes_at_once: bool = True
    ask: Callable[[str], list[str]] | None = None
    each_node: tuple[str, ...] = ()
    warns: bool = False


def job_name(cluster_id: str) -> str:
    """What the job of a cluster is called: it can be cancelled by that, whatever happened to the
    one who submitted it."""
    return f"tnt-{cluster_id}"


def asked(command: list[str]) -> str:
    """What a command of a batch system prints; with its errors where it fails."""
    try:
        run = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace",
            timeout=_ASK_S, env={**os.environ, "LC_ALL": "C"},
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError) as error:
        return f"{command[0]}: {error}"
    return run.stdout if run.returncode == 0 else f"{run.stdout}\n{run.stderr}".strip()


def silent(said: str) -> Job:
    """A job of which the batch system has not spoken, but of something else."""
    return Job("unknown", " ".join(said.split())[:200] or "no answer")


def clock(seconds: int) -> str:
    """A time limit as hours:minutes:seconds."""
    return f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"


def number_in(variable: str) -> Callable[[Mapping[str, str]], int | None]:
    """Reads a number of ranks from a variable of an allocation."""

    def read(environment: Mapping[str, str]) -> int | None:
        said = environment.get(variable, "")
        return int(said) if said.isdecimal() and len(said) < 6 and int(said) > 0 else None

    return read


def lines_in(variable: str, environment: Mapping[str, str]) -> list[str]:
    """The hosts, one for each line, in the file that a variable of an allocation names; empty
    outside of one.
    """
    path = environment.get(variable)
    if path is None:
        return []
    try:
        lines = Path(path).read_text(errors="replace").splitlines()
    except OSError:
        return []
    return [line.split()[0] for line in lines if line.strip()]


def listed_in(variable: str) -> list[str]:
    """The same hosts, each once."""
    return list(dict.fromkeys(lines_in(variable, os.environ)))
