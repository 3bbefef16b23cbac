"""What ranks need to make worlds of their own; also on several nodes, which are emulated."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any
from unittest import mock

import psutil

from tnt_notebook import comm
from tnt_notebook.comm import _kernels, links, mpi
from tnt_notebook.comm.connection import Connection

if TYPE_CHECKING:
    from mpi4py import MPI

#: Of the ranks on which the test's function runs; ``None`` on one rank.
communicator: MPI.Comm | None = None


def make_world(over: MPI.Comm | None, nodes: Sequence[int] = (), **options: Any) -> comm.World:
    """A world of the ranks of a communicator.

    Args:
        nodes: number of the node on which each rank is taken to be: memory is shared with the ranks
            of the same node only, and MPI carries what goes between nodes. Default: all on one.
        options: of :class:`tnt_notebook.comm.World`.
    """
    if not nodes:
        return comm.World(over, **options)

    class OnNodes(Connection):
        def open(self) -> None:
            share = functools.partial(_share, [nodes[seat] for seat in self.seats])
            with mock.patch.object(links, "_share", share):
                super().open()

    # Not by its name, which in the package is that of a function.
    with mock.patch.object(
        importlib.import_module("tnt_notebook.comm.world"), "Connection", OnNodes
    ):
        return comm.World(over, **options)


def _share(
    nodes: Sequence[int], over: MPI.Comm, transport: str, link_mbit: float | None, timeout_s: float
) -> tuple[_kernels.SharedNode | None, list[int], str]:
    segment = _kernels.Segment(psutil.virtual_memory().total)
    addresses = mpi.allgather(over, segment.address, timeout_s, "shared memory")
    peers = [rank for rank, node in enumerate(nodes) if node == nodes[over.rank]]
    shared = None
    if len(peers) > 1:
        shared = _kernels.join_node(segment, over.rank, peers, [addresses[r] for r in peers])
    # The segment must live until all have mapped it.
    mpi.allgather(over, None, timeout_s, "shared memory")
    return shared, [nodes.index(node) for node in nodes], "nodes are emulated"
