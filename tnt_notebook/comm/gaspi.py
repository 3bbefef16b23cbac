"""GPI-2 (GASPI) between ranks: agreed over MPI, carried by ``kernels/transport/gaspi.h``.

GASPI starts once in a process, together on all ranks of a *job*: those of the first world that asks
for it. Later worlds may be of the same ranks or of some of them.
"""

from __future__ import annotations

import os
import random
import socket
import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tnt_notebook.comm import _kernels, mpi
from tnt_notebook.errors import CommunicationError

if TYPE_CHECKING:
    from mpi4py import MPI

#: Names the library: a path, or a name that the dynamic linker finds.
LIBRARY_VARIABLE = "TNT_GASPI_LIBRARY"

#: Seconds for GASPI to start, and for a transport to open, where ranks may wait longer for others.
_OPENING_S = 60.0

#: Of GPI-2's ports: above those of services, below those that the system gives out itself.
_FIRST_PORT, _LAST_PORT = 10_000, 32_000

_IMPOSSIBLE = "transport gpi is not possible: "


@dataclass(frozen=True)
class _Job:
    """Ranks that start GASPI together.

    Attributes:
        id: the same on all of them, and no other job's.
        rank: of this process.
        hosts: of each rank, as the others resolve it.
        port_base: as in gaspi.h.
    """

    id: str
    rank: int
    hosts: tuple[str, ...]
    port_base: int


_job: _Job | None = None


def library() -> str:
    """The name or path of GPI-2."""
    return os.environ.get(LIBRARY_VARIABLE) or "libGPI2.so"


def transports(comm: MPI.Comm, lanes: int, timeout_s: float) -> list[_kernels.Transport]:
    """Opens as many transports as there are lanes. Collective.

    What is under way over earlier ones does not reach these, so that after a failure there is
    nothing to drain: the failed ones need only be closed.

    Raises:
        CommunicationError: on all ranks, if GPI-2 cannot be had on one of them.
    """
    global _job
    started = mpi.allgather(comm, _job and (_job.id, _job.rank), timeout_s, "opening GASPI")
    if not any(started):
        job = _plan(comm, timeout_s)
        members = list(range(comm.size))
    elif _job is not None and all(other and other[0] == _job.id for other in started):
        job = _job
        members = [other[1] for other in started]
    else:
        raise CommunicationError(
            f"{_IMPOSSIBLE}GASPI has started among other ranks, and it starts once in a process. "
            "Make the first world with transport gpi of all ranks, or restart them."
        )

    uses = mpi.allgather(comm, _kernels.gaspi_use(), timeout_s, "opening GASPI")
    epoch = max(last for last, _ in uses)
    segments = sorted(set.intersection(*(set(free) for _, free in uses)))
    if len(segments) < lanes:
        raise CommunicationError(f"{_IMPOSSIBLE}too many worlds are open over GASPI. Close some.")
    limit_s = min(timeout_s, _OPENING_S)
    opened, problem = [], ""
    try:
        for lane in range(lanes):
            opened.append(
                _kernels.gaspi_transport(
                    library=library(),
                    rank=job.rank,
                    hosts=job.hosts,
                    port_base=job.port_base,
                    members=members,
                    epoch=epoch + 1 + lane,
                    segment=segments[lane],
                    timeout_s=limit_s,
                )
            )
            _job = job  # started, whatever comes next
    except RuntimeError as error:
        problem = str(error)
    _raise_first(mpi.allgather(comm, problem, timeout_s + limit_s, "opening GASPI"))
    return opened


def _plan(comm: MPI.Comm, timeout_s: float) -> _Job:
    """Hosts and ports on which all ranks can start GASPI. Collective."""
    names = mpi.allgather(comm, socket.gethostname(), timeout_s, "opening GASPI")
    # A name of its own may mean nothing on a host that is alone.
    hosts = tuple(names) if len(set(names)) > 1 else ("localhost",) * comm.size
    bases = list(range(_FIRST_PORT, _LAST_PORT - _kernels.gaspi_ports, _kernels.gaspi_ports))
    # Jobs that start at the same time should not want the same ports; nor is the program's own
    # random state ours to change.
    random.SystemRandom().shuffle(bases)
    free, problem = [], ""
    try:
        for host in set(hosts):
            socket.getaddrinfo(host, None, socket.AF_INET)
        free = [
            base
            for base in bases
            if _kernels.gaspi_ports_are_free(library(), comm.rank, hosts, base)
        ]
        if not free:
            problem = f"rank {comm.rank}: no {_kernels.gaspi_ports} free ports for GASPI"
    except OSError as error:
        problem = f"rank {comm.rank}: host {host} is not known here: {error}"
    except RuntimeError as error:
        problem = f"rank {comm.rank}: {error}"
    facts = mpi.allgather(comm, (problem, free, uuid.uuid4().hex), timeout_s, "opening GASPI")
    _raise_first([problem for problem, _, _ in facts])
    _, wishes, job_id = facts[0]
    common = [base for base in wishes if all(base in free for _, free, _ in facts)]
    if not common:
        raise CommunicationError(f"{_IMPOSSIBLE}there are no ports that are free on all hosts.")
    return _Job(job_id, comm.rank, hosts, common[0])


def _raise_first(problems: list[str]) -> None:
    for problem in filter(None, problems):
        raise CommunicationError(_IMPOSSIBLE + problem)
