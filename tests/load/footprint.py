"""What the processes of a cluster take: memory of their own, threads, open files."""

from __future__ import annotations

from dataclasses import dataclass

import psutil

from tnt_notebook import warden
from tnt_notebook.cluster import Cluster


@dataclass(frozen=True)
class Footprint:
    """Of one process; memory that no other process shares, in MB."""

    memory: float
    threads: int
    files: int

    @classmethod
    def of(cls, process: psutil.Process) -> Footprint:
        return cls(process.memory_full_info().uss / 1e6, process.num_threads(), process.num_fds())


def footprints(cluster: Cluster) -> dict[str, Footprint]:
    """Of this process, and of every process of a cluster, by what it is and its pid."""
    found = {"this process": Footprint.of(psutil.Process())}
    for pid in warden.processes_of(cluster.id):
        process = psutil.Process(pid)
        found[f"{' '.join(process.cmdline())} ({pid})"] = Footprint.of(process)
    return found
