"""From a request to what starts the engines: a command, or a script that is submitted."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tnt_notebook import protocol
from tnt_notebook.cluster.files.folder import RunFolder
from tnt_notebook.cluster.launch.batch import System, job_name, named
from tnt_notebook.cluster.launch.command import (
    environment,
    find_mpiexec,
    guarded,
    is_open_mpi,
    local_environment,
    mpi_arguments,
    ports,
    sweep,
)
from tnt_notebook.cluster.launch.options import Request
from tnt_notebook.cluster.launch.script import FORWARD, FORWARDED, environment_script, line, script
from tnt_notebook.cluster.launch.systems import SYSTEMS
from tnt_notebook.errors import ClusterError
from tnt_notebook.warden import ENGINES_MARKER, MARKER

#: A rank's engine. ``--mpi`` makes its id the rank.
_ENGINE = ("-m", protocol.ENGINE)


@dataclass(frozen=True)
class Launch:
    """Everything that starts a set of engines; nothing has been written or started.

    Attributes:
        shown: command or script, for a person.
        options: of ipyparallel's launcher, where mpiexec runs on this host.
        system: else, whose job the engines are.
        script: of that job.
        files: to be written before, for their owner only.
        ask, cancel, listing: of the job, for the warden.
        sweep: what the warden runs when the ranks have ended, where they run in an allocation.
    """

    shown: str
    options: dict[str, Any] = field(default_factory=dict)
    system: System | None = None
    script: Path | None = None
    files: dict[Path, str] = field(default_factory=dict)
    ask: list[str] = field(default_factory=list)
    cancel: list[str] = field(default_factory=list)
    listing: list[str] = field(default_factory=list)
    sweep: list[str] = field(default_factory=list)

    def check(self) -> None:
        """Raises where this host has no such batch system, before anything is begun."""
        if self.system is not None and shutil.which(self.system.submit) is None:
            raise ClusterError(
                f"{self.system.submit} was not found: this host submits no jobs of "
                f"{self.system.title}. Use another --launcher, or start Jupyter on a login node."
            )


def launch_of(
    asked: Request, folder: RunFolder, cluster_id: str, inherited: Mapping[str, str] = os.environ
) -> Launch:
    """How the engines of a request are started.

    Args:
        folder: where output and session files go.
        cluster_id: marks every process of the cluster.
        inherited: environment of the notebook.

    Raises:
        ClusterError: there is no mpiexec.
    """
    if asked.launcher in SYSTEMS and not asked.inside:
        return _job(asked, folder, cluster_id, SYSTEMS[asked.launcher], inherited)
    return _process(asked, folder, cluster_id, inherited)


def _process(
    asked: Request, folder: RunFolder, cluster_id: str, inherited: Mapping[str, str]
) -> Launch:
    """Engines under an mpiexec that runs on this host."""
    mpiexec = find_mpiexec()
    system = SYSTEMS.get(asked.launcher)
    own = _environment(asked, folder, cluster_id, mpiexec)
    command = [str(mpiexec)]
    open_mpi = is_open_mpi(mpiexec)
    after: list[str] = []
    if system is not None or (asked.hosts and open_mpi):
        prepare = system.prepare(asked) if system else [FORWARD]
        said = (system.mpi_arguments if system else FORWARDED) if open_mpi else ""
        words = ["exec", shlex.quote(str(mpiexec)), said, '"$@"']
        shell = [*prepare, " ".join(filter(None, words))]
        command = ["bash", "-c", "\n".join(shell), "mpiexec"]
        if system is not None and (sweeps := sweep(mpiexec, folder, system.each_node)):
            plain = environment(folder, cluster_id) | guarded(mpiexec, here=False)
            del plain[MARKER]  # those have been ended
            settings = [f"{name}={value}" for name, value in plain.items()]
            shell = [*prepare, line(system, sweeps)]
            after = ["env", *settings, "bash", "-c", "\n".join(shell)]
    if asked.launcher == "local":
        own |= local_environment(folder)
        # Of a batch system this is not meant to know: it would start ranks on its nodes.
        jobs = ("SLURM_", "PBS_", "LSB_", "PE_HOSTFILE")
        foreign = sorted(k for k in inherited if k.startswith(jobs))
        if foreign:
            command = ["env", *(word for k in foreign for word in ("-u", k)), *command]
    arguments = mpi_arguments(
        mpiexec, asked.ranks, asked.per_node, asked.hosts, asked.ssh, here=system is None
    )
    if asked.modules:
        loads = " && ".join(f"module load {shlex.quote(module)}" for module in asked.modules)
        login = ["bash", "-lc", f'{loads} && exec "$@"', "modules"]
        command, after = [*login, *command], [*login, *after] if after else []
    engine = [sys.executable, *_ENGINE]
    arguments += [word for options in asked.extra for word in shlex.split(options)]
    told = _arguments(asked, folder)
    shown = [*command, "-n", str(asked.ranks), *arguments, *engine, "--mpi", *told]
    return Launch(
        shlex.join(shown),
        {
            "mpi_cmd": command,
            "mpi_args": arguments,
            "engine_cmd": engine,
            "engine_args": told,
            "environment": own | {ENGINES_MARKER: cluster_id},
            "output_file": str(folder.launcher_log),
        },
        sweep=after,
    )


def _job(
    asked: Request, folder: RunFolder, cluster_id: str, system: System, inherited: Mapping[str, str]
) -> Launch:
    """Engines under an mpiexec that runs in a job."""
    mpiexec = find_mpiexec()
    own = _environment(asked, folder, cluster_id, mpiexec)
    arguments = mpi_arguments(mpiexec, asked.ranks, asked.per_node, here=False)
    command = [
        # Of the ranks only, and not of the script: they are ended by it, and started again.
        *("env", f"{ENGINES_MARKER}={cluster_id}"),
        *(str(mpiexec), "-n", str(asked.ranks), *(["{mpi}"] if is_open_mpi(mpiexec) else [])),
        *arguments,
        *(sys.executable, *_ENGINE, "--mpi"),
        *(f"--profile-dir={folder.profile}", f"--cluster-id={cluster_id}"),
        *_arguments(asked, folder),
    ]
    name = job_name(cluster_id)
    job, variables = folder.path / "job.sh", folder.path / "environment.sh"
    output, after = str(folder.launcher_log), sweep(mpiexec, folder, system.each_node)
    text = script(system, asked, name, output, str(variables), command, after)
    return Launch(
        text,
        system=system,
        script=job,
        files={job: text, variables: environment_script(own, inherited)},
        ask=named(system.ask, name),
        cancel=named(system.cancel, name),
        listing=named(system.listing, name),
    )


def _environment(
    asked: Request, folder: RunFolder, cluster_id: str, mpiexec: Path
) -> dict[str, str]:
    """Of mpiexec and engines, besides what they inherit."""
    own = environment(folder, cluster_id) | guarded(mpiexec, here=asked.launcher == "local")
    if asked.launcher not in SYSTEMS:  # a node has no forgotten connections, but others' daemons
        own |= ports(mpiexec)
    return own | asked.settings | asked.env


def _arguments(asked: Request, folder: RunFolder) -> list[str]:
    """What an engine is told."""
    said = [f"--ranks={asked.ranks}", f"--logs={folder.logs}"]
    if asked.gpus is not None:
        said.append(f"--gpus={asked.gpus}")
    if asked.cores is not None:
        said.append(f"--cores={asked.cores}")
    if asked.launcher != "local":
        said.append("--hosts")
    return said
