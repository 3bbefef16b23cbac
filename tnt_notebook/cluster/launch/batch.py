"""Batch systems as values: what their scripts look like, and how they are asked about a job."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from tnt_notebook.cluster.launch.inherited import inheritable
from tnt_notebook.cluster.request import Request

_ASK_S = 30.0
#: Engines that have ended can be started again in the same job, if the notebook asks for it soon.
_AGAIN = """\
for round in $(seq 1000); do
  {mpiexec}
  code=$?
  echo $code > "$TNT_FOLDER/ended-$round"
  for wait in $(seq 120); do
    [ -e "$TNT_FOLDER/again-$round" ] && continue 2
    sleep 0.5
  done
  exit $code
done
"""


@dataclass(frozen=True)
class Job:
    """What a batch system says of a job.

    Attributes:
        state: ``pending``, ``running`` or ``ended``.
        why: of a pending job what it waits for; of one that ended, how.
        more: when it is expected to begin, its place in the queue, or the time that is left.
    """

    state: Literal["pending", "running", "ended"]
    why: str = ""
    more: str = ""

    def __str__(self) -> str:
        said = f"is {self.state}" if self.state != "ended" else "has ended"
        return (
            said + (f": {self.why}" if self.why else "") + (f" ({self.more})" if self.more else "")
        )


@dataclass(frozen=True)
class System:
    """A batch system.

    Attributes:
        name: of the launcher.
        title: as people call it.
        engines: ipyparallel's launcher.
        submit: the command, for those who want to see it.
        variable: of the environment, which says that this is inside of an allocation.
        directives: lines of the script's head, of a request, a job's name and an output file.
        hosts: lines of the script that prepare what ``mpi_arguments`` name.
        mpi_arguments: of Open MPI's mpiexec in the script, as shell text; MPICH finds out itself.
        cancel: the command that cancels a job, by its name.
        listing: a command that prints something as long as there is a job of that name.
        look: what is known of a job, by its id.
        nodes: addresses of nodes that may run ranks, as far as they are known beforehand.
        tasks: the variable that says how many ranks an allocation is for.
    """

    name: str
    title: str
    engines: type[Any]
    submit: str
    variable: str
    directives: Callable[[Request, str, str], list[str]]
    hosts: tuple[str, ...]
    mpi_arguments: str
    cancel: Callable[[str], list[str]]
    listing: Callable[[str], list[str]]
    look: Callable[[str], Job]
    nodes: Callable[[], list[str]]
    tasks: str


def job_name(cluster_id: str) -> str:
    """What the job of a cluster is called: it can be cancelled by that, whatever happened to the
    one who submitted it."""
    return f"tnt-{cluster_id}"


def script(
    system: System, asked: Request, name: str, output: str, environment: str, command: list[str]
) -> str:
    """A batch script.

    Args:
        name: of the job.
        output: the file for what the job writes.
        environment: the file to source first.
        command: mpiexec and all that follows; ``{mpi}`` stands for the system's own arguments.
    """
    words = [system.mpi_arguments if word == "{mpi}" else shlex.quote(word) for word in command]
    lines = [
        "#!/bin/bash" + (" -l" if asked.modules else ""),  # a login shell knows modules
        *system.directives(asked, name, output),
        "umask 077",
        f". {shlex.quote(environment)}",
        *(f"module load {shlex.quote(module)}" for module in asked.modules),
        *system.hosts,
        *_AGAIN.format(mpiexec=" ".join(word for word in words if word)).splitlines(),
    ]
    return "\n".join(lines) + "\n"


def environment_script(own: Mapping[str, str], inherited: Mapping[str, str]) -> str:
    """What the script sources: the notebook's environment, so that the same programs are found on
    the nodes, and the cluster's own variables.
    """
    kept = inheritable(inherited) | dict(own)
    named = {k: v for k, v in kept.items() if re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", k)}
    return "".join(f"export {name}={shlex.quote(value)}\n" for name, value in sorted(named.items()))


def asked(command: list[str]) -> str:
    """What a command of a batch system prints; with its errors where it fails."""
    try:
        run = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_ASK_S,
            env={**os.environ, "LC_ALL": "C"},
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError) as error:
        return f"{command[0]}: {error}"
    return run.stdout if run.returncode == 0 else f"{run.stdout}\n{run.stderr}".strip()


def clock(seconds: int) -> str:
    """A time limit as hours:minutes:seconds."""
    return f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"


def listed_in(variable: str) -> list[str]:
    """The hosts in the file that a variable of an allocation names; empty outside of one."""
    path = os.environ.get(variable)
    if path is None:
        return []
    try:
        lines = Path(path).read_text().splitlines()
    except OSError:
        return []
    return list(dict.fromkeys(line.split()[0] for line in lines if line.strip()))
