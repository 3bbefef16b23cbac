"""The batch systems that are known, and whether this process runs inside of a job of one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tnt_notebook.cluster.launch.batch import System
from tnt_notebook.cluster.launch.lsf import LSF
from tnt_notebook.cluster.launch.pbs import PBS
from tnt_notebook.cluster.launch.sge import SGE
from tnt_notebook.cluster.launch.slurm import SLURM

SYSTEMS: dict[str, System] = {system.name: system for system in (SLURM, PBS, LSF, SGE)}


def allocation(environment: Mapping[str, str]) -> System | None:
    """The batch system of the job that this process is in."""
    return next((s for s in SYSTEMS.values() if environment.get(s.variable)), None)


def chosen(launcher: str | None, hostfile: Any, environment: Mapping[str, str]) -> tuple[str, bool]:
    """The launcher, and whether it works inside of the allocation that this process is in.

    Without a word it is that allocation, or the hosts of a hostfile, or this machine. A batch
    system that is named is asked for a job of its own.
    """
    if launcher is not None:
        return launcher, False
    if hostfile is not None:
        return "ssh", False
    system = allocation(environment)
    return ("local", False) if system is None else (system.name, True)


def tasks(launcher: str, environment: Mapping[str, str]) -> int | None:
    """How many ranks the allocation that this process is in was made for."""
    said = environment.get(SYSTEMS[launcher].tasks, "") if launcher in SYSTEMS else ""
    return int(said) if said.isdecimal() and 0 < int(said) < 1 << 16 else None
