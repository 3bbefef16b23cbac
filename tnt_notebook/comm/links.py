"""How the ranks of a world reach each other: shared memory within a node, a network between nodes.

The choice is the user's (``transport``), or ``"auto"``; what came of it, and why, is told by
:class:`Links`.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import psutil

from tnt_notebook.comm import _kernels, gaspi, mpi
from tnt_notebook.errors import CommunicationError

if TYPE_CHECKING:
    from mpi4py import MPI

#: With the value 0, shared memory is not used.
SHARED_MEMORY_VARIABLE = "TNT_SHARED_MEMORY"


@dataclass(frozen=True)
class Links:
    """What carries messages between the ranks of a world.

    Attributes:
        asked: the transport that was asked for.
        node: number of the node of each rank; ranks of one node share memory.
        network: what carries messages between nodes: ``"mpi"`` or ``"gpi"``.
        reason: why it came so, a sentence.
        mbit: rate at which each rank sends over the network, in Mbit/s; None: as it can.
    """

    asked: str
    node: tuple[int, ...]
    network: str
    reason: str
    mbit: float | None = None

    def describe(self) -> str:
        """In a few words: ``shared memory``, ``shared memory, mpi between 2 nodes``, ``mpi``, ``mpi
        over emulated links of 100 Mbit/s``."""
        nodes = len(set(self.node))
        if len(self.node) == 1:
            return "none"
        if self.mbit is not None:
            return f"{self.network} over emulated links of {self.mbit:g} Mbit/s"
        if nodes == 1:
            return "shared memory"
        if nodes == len(self.node):
            return self.network
        return f"shared memory, {self.network} between {nodes} nodes"


def agree(
    comm: MPI.Comm, transport: str, lanes: int, link_mbit: float | None, timeout_s: float
) -> list[str]:
    """Makes sure that all ranks ask for the same. Collective.

    Returns:
        The name of each rank's host.

    Raises:
        CommunicationError: on all ranks, if they do not.
    """
    own = {
        "transport": transport,
        "lanes": lanes,
        "link": link_mbit,
        SHARED_MEMORY_VARIABLE: os.environ.get(SHARED_MEMORY_VARIABLE, ""),
    }
    told = mpi.allgather(comm, (own, platform.node()), timeout_s, "opening links")
    (first, _), *others = told
    for rank, (other, _) in enumerate(others, start=1):
        for name in own:
            if other[name] != first[name]:
                raise CommunicationError(
                    f"the ranks ask for different links: {name} is {first[name]!r} on rank 0 and "
                    f"{other[name]!r} on rank {rank}"
                )
    return [host for _, host in told]


def open_links(
    comm: MPI.Comm,
    links: Sequence[MPI.Comm],
    transport: str,
    link_mbit: float | None,
    timeout_s: float,
) -> tuple[list[_kernels.Transport], Links]:
    """Connects the ranks of ``comm``. Collective.

    Args:
        comm: for the exchange of addresses.
        links: private communicators, one for each lane of the engine.
        transport: one of :data:`tnt_notebook.choices.TRANSPORTS`, the same on all ranks.
        link_mbit: rate of each rank's emulated link, in Mbit/s; the same on all ranks, or None.
        timeout_s: seconds that the other ranks may take.

    Raises:
        CommunicationError: on all ranks, if what was asked for cannot be had.
    """
    network = "gpi" if transport == "gpi" else "mpi"
    shared, node, reason = _share(comm, transport, link_mbit, timeout_s)
    if transport == "shm" and len(set(node)) > 1:
        raise CommunicationError(f"transport shm is not possible: {reason}")
    if network == "gpi":
        networks = gaspi.transports(comm, len(links), timeout_s)
    else:
        with mpi.turn():
            networks = [mpi.transport(link) for link in links]
    if link_mbit is not None:
        networks = _kernels.pace(networks, link_mbit)
    if shared is not None:
        networks = [_kernels.route(shared, lane, net) for lane, net in enumerate(networks)]
    return networks, Links(transport, tuple(node), network, reason, link_mbit)


def _share(
    comm: MPI.Comm, transport: str, link_mbit: float | None, timeout_s: float
) -> tuple[_kernels.SharedNode | None, list[int], str]:
    """Maps the memory of the ranks of this node; the node of each rank; what to say about it."""
    alone = list(range(comm.size))
    if link_mbit is not None:
        return None, alone, "links are emulated, so each rank counts as a node of its own"
    if transport == "mpi":
        return None, alone, "transport mpi was asked for"
    if os.environ.get(SHARED_MEMORY_VARIABLE) == "0":
        return None, alone, f"{SHARED_MEMORY_VARIABLE}=0 turns shared memory off"

    segment, address, problem = None, None, ""
    try:
        # As much as the machine has: memory is taken when it is used.
        segment = _kernels.Segment(psutil.virtual_memory().total)
        address = segment.address
    except RuntimeError as error:
        problem = f"rank {comm.rank}: {error}"
    addresses = mpi.allgather(comm, address, timeout_s, "shared memory")
    hosts = [a[0] if a else None for a in addresses]
    peers = [r for r, host in enumerate(hosts) if host is not None and host == hosts[comm.rank]]
    node = None
    if segment is not None and len(peers) > 1:
        try:
            node = _kernels.join_node(segment, comm.rank, peers, [addresses[r] for r in peers])
        except RuntimeError as error:
            problem = str(error)
    problems = mpi.allgather(comm, problem, timeout_s, "shared memory")
    # One who cannot map the others leaves all of the node without.
    without = {hosts[r] for r, text in enumerate(problems) if text} | {None}
    nodes = [alone[r] if hosts[r] in without else hosts.index(hosts[r]) for r in alone]
    reason = next((text for text in problems if text), "")
    if not reason:
        same = max(nodes.count(n) for n in nodes) > 1
        reason = "ranks of a host share memory" if same else "each rank is on a host of its own"
    return (None if hosts[comm.rank] in without else node), nodes, reason
