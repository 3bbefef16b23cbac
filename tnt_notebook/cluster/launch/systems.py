"""The batch systems that are known, and whether this process runs inside of a job of one."""

from __future__ import annotations

import os
from collections.abc import Mapping
from importlib import import_module
from typing import Any

from tnt_notebook.choices import BATCH_SYSTEMS
from tnt_notebook.cluster.launch.batch import System, hosts_in

#: Each is in a file of its own, of the same name.
SYSTEMS: dict[str, System] = {
    name: import_module(f"{__package__}.{name}").SYSTEM for name in BATCH_SYSTEMS
}


def allocation(environment: Mapping[str, str]) -> str | None:
    """The batch system of the job that this process is in."""
    return next((name for name, s in SYSTEMS.items() if environment.get(s.variable)), None)


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
    return ("local", False) if system is None else (system, True)


def tasks(launcher: str, environment: Mapping[str, str]) -> int | None:
    """How many ranks the allocation that this process is in was made for."""
    system = SYSTEMS.get(launcher)
    if system is None:
        return None
    if system.tasks is None:
        return len(hosts_in(system.nodefile, environment)) or None
    said = environment.get(system.tasks, "")
    return int(said) if said.isdecimal() and len(said) < 6 and int(said) > 0 else None


def nodes(launcher: str) -> list[str]:
    """Hosts that may run ranks, each once, as far as they are known beforehand."""
    system = SYSTEMS[launcher]
    known = system.nodes() if system.nodes else hosts_in(system.nodefile, os.environ)
    return list(dict.fromkeys(known))
