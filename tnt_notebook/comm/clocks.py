"""How far the clocks of hosts are apart: Cristian's algorithm (1989) between rank 0 and each host.

::

    rank 0     sent ----------------------- received
                   \\                      /
    other           ------> theirs -------

Its clock stood at `theirs` somewhere between `sent` and `received`: in the middle, give or take
half of the round trip. Of several round trips the shortest one tells most.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from tnt_notebook.comm import mpi

if TYPE_CHECKING:
    from mpi4py import MPI

_ROUNDS = 8
_TAG = 0x7C
_WHAT = "comparing clocks"


class Clocks(NamedTuple):
    """What :func:`time.monotonic_ns` says on each rank beside rank 0.

    Attributes:
        ahead_ns: of each rank, how far its clock is ahead of rank 0's; int64.
        error_ns: by how much that may be wrong, at most; 0 on one host.
    """

    ahead_ns: np.ndarray
    error_ns: int


def ahead_of(exchanges: Iterable[tuple[int, int, int]]) -> tuple[int, int]:
    """How far a clock is ahead, and by how much that may be wrong.

    Args:
        exchanges: (sent, theirs, received), in nanoseconds; sent and received by the own clock.
    """
    sent, theirs, received = min(exchanges, key=lambda exchange: exchange[2] - exchange[0])
    return theirs - (sent + received) // 2, (received - sent + 1) // 2


def compare(
    comm: MPI.Comm,
    node: Sequence[int],
    timeout_s: float,
    clock: Callable[[], int] = time.monotonic_ns,
) -> Clocks:
    """Compares the clocks of all hosts with rank 0's. Collective; ranks of a host have one clock.

    Args:
        node: the number of each rank's host.

    Raises:
        CommunicationError: a rank does not take part within ``timeout_s`` seconds.
    """
    firsts = {number: node.index(number) for number in node}
    told = np.zeros((2, comm.size), np.int64)
    for number, rank in firsts.items():
        if number == node[0] or comm.rank not in (0, rank):
            continue
        if comm.rank == 0:
            exchanges = [_ask(comm, rank, timeout_s, clock) for _ in range(_ROUNDS)]
            members = [r for r, other in enumerate(node) if other == number]
            told[:, members] = np.array([ahead_of(exchanges)]).T
        else:
            for _ in range(_ROUNDS):
                _answer(comm, timeout_s, clock)
    if len(firsts) > 1:
        mpi.carry_out(lambda: comm.Ibcast(told, root=0), timeout_s, _WHAT)
    return Clocks(told[0], int(told[1].max()))


def _ask(
    comm: MPI.Comm, rank: int, timeout_s: float, clock: Callable[[], int]
) -> tuple[int, int, int]:
    theirs = np.empty(1, np.int64)
    with mpi.turn():
        answer = comm.Irecv(theirs, rank, _TAG)
    sent = clock()
    with mpi.turn():
        question = comm.Isend(np.empty(0, np.int64), rank, _TAG)
    mpi.wait(answer, timeout_s, _WHAT, first_nap_s=0)  # naps would count as time on the way
    received = clock()
    mpi.wait(question, timeout_s, _WHAT)
    return sent, int(theirs[0]), received


def _answer(comm: MPI.Comm, timeout_s: float, clock: Callable[[], int]) -> None:
    with mpi.turn():
        question = comm.Irecv(np.empty(0, np.int64), 0, _TAG)
    mpi.wait(question, timeout_s, _WHAT, first_nap_s=0)
    now = np.array([clock()], np.int64)
    mpi.carry_out(lambda: comm.Isend(now, 0, _TAG), timeout_s, _WHAT)
