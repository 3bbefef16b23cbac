"""How the ranks of a world make it work again after a failure.

Where a death ends the job, all ranks are there: they open new links when nothing is under way over
the old ones any more. Where ranks outlive others (:mod:`tnt_notebook.comm.survival`)::

    agree -- all fine --> done
      |
      | somebody failed or died
      v
    give up the links -> leave the dead -> open links -> agree -- all fine --> done
      ^                                                    |
      '------------------- somebody died ------------------'

No rank is ever left in a step that another one has not reached: who fails revokes the communicator.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tnt_notebook.comm import _kernels, mpi, survival
from tnt_notebook.comm.connection import Connection
from tnt_notebook.errors import CommunicationError

if TYPE_CHECKING:
    from mpi4py import MPI

#: To open links, beside those that end with the death of a rank.
_ATTEMPTS = 3

#: Seconds in which sends over links that are given up usually end.
_SENDS_END_S = 2.0

#: Engines whose memory MPI may still read.
_under_way: list[_kernels.Engine] = []


def recover(connection: Connection) -> None:
    """Opens it again if it has failed. Collective over the ranks that live.

    Raises:
        CommunicationError: a rank that lives does not come, or there are no links between them.
    """
    parent = connection.parent
    if parent is None:
        if connection.failure:
            connection.close()
            connection.open()
    elif not survival.survives():
        _recover_with_all(connection, parent)
    elif not survival.all_fine(
        parent, connection.failure is None, connection.timeout_s, "recovery"
    ):
        _begin_again(connection, parent)


def _recover_with_all(connection: Connection, parent: MPI.Intracomm) -> None:
    """Of a job that does not outlive the death of a rank. Collective."""
    if not _agree(connection, parent):
        return
    connection.close()
    # Over GPI-2 what is under way reaches no later transport.
    if connection.links.network == "mpi":
        for lane, link in enumerate(connection.lane_links):
            mpi.drain(connection.engine, lane, link, parent, timeout_s=10)
    with mpi.turn():
        for link in connection.lane_links:
            link.Free()
    connection.abandoned.clear()
    connection.open()


def _agree(connection: Connection, parent: MPI.Intracomm) -> bool:
    """Whether any rank has failed. Afterwards all have taken the same number of channels: one that
    failed may have made fewer groups and buckets than the others. Collective.
    """
    from mpi4py import MPI

    own = np.array([connection.failure is not None, connection.channels_taken], np.int32)
    most = np.empty_like(own)
    mpi.carry_out(lambda: parent.Iallreduce(own, most, MPI.MAX), connection.timeout_s, "recovery")
    connection.channels_taken = int(most[1])
    return bool(most[0])


def grow(connection: Connection, command: Callable[[int], Sequence[str]]) -> None:
    """Starts ranks for the seats that are vacant. Collective."""
    from mpi4py import MPI

    parent = connection.parent
    assert parent is not None, "a rank alone has lost none"
    hosts = connection.hosts_of_seats
    lost = sorted(set(range(connection.all_seats)) - {*connection.seats})
    vacant = [(seat, list(command(seat)), hosts[seat]) for seat in lost]
    problem = None
    try:
        seated = _fill(
            _Seated(parent, connection.all_seats, connection.seats), vacant, connection.timeout_s
        )
    except (MPI.Exception, CommunicationError) as error:
        problem = error
    if not survival.all_fine(parent, problem is None, connection.timeout_s, "starting ranks"):
        raise CommunicationError(
            f"The ranks for the seats {lost} did not start. Restart the cluster."
        ) from problem
    _give_up_links(connection)
    _enter(connection, seated)
    with mpi.turn():
        parent.Free()


def join(connection: Connection, by: MPI.Intercomm) -> None:
    """What a rank does that was started by :func:`grow`, while the others do that."""
    seated = _fill(*_take_seat(by, None, [], connection.timeout_s), connection.timeout_s)
    _give_up_links(connection)
    _enter(connection, seated)


#: Seats without a rank: the seat, the command of its rank, and the host where it was.
_Vacant = list[tuple[int, list[str], str]]


class _Seated(NamedTuple):
    """Ranks of a communicator, how many seats there are, and which of them the ranks have."""

    comm: MPI.Intracomm
    seats: int
    members: tuple[int, ...]


def _fill(seated: _Seated, vacant: _Vacant, timeout_s: float) -> _Seated:
    """Starts ranks, one after another; who has come helps to start the next.

    Open MPI's mpiexec ends ranks that were started together when one of them dies.
    """
    while vacant:
        _, command, host = vacant[0]
        between = survival.spawned(seated.comm, command, host)
        seated, vacant = _take_seat(between, seated, vacant, timeout_s)
    return seated


def _take_seat(
    between: MPI.Intercomm, before: _Seated | None, vacant: _Vacant, timeout_s: float
) -> tuple[_Seated, _Vacant]:
    """The first vacant seat is taken by the rank that has come: the one with no ``before``."""
    merged = survival.bounded(lambda: between.Merge(before is None), "meet a new one")
    told = before and (before.seats, before.members, vacant)
    seats, members, vacant = mpi.allgather(merged, told, timeout_s, "taking seats")[0]
    taken = (*members, vacant[0][0])
    comm: Any = survival.bounded(lambda: merged.Split(0, taken[merged.rank]), "take seats")
    with mpi.turn():
        merged.Free()
        between.Free()
    return _Seated(comm, seats, tuple(sorted(taken))), vacant[1:]


def _enter(connection: Connection, seated: _Seated) -> None:
    connection.parent, connection.all_seats, seats = seated
    connection.set_seats(seats)
    problem = _problem_of_opening(connection, seated.comm)
    if not survival.all_fine(seated.comm, problem is None, connection.timeout_s, "recovery"):
        _begin_again(connection, seated.comm)


def _begin_again(connection: Connection, parent: MPI.Intracomm) -> None:
    problem = None
    # More ranks may die meanwhile: each time those that live begin again.
    for _ in range(parent.size + _ATTEMPTS):
        _give_up_links(connection)
        parent = _leave_dead(connection, parent)
        problem = _problem_of_opening(connection, parent)
        if survival.all_fine(parent, problem is None, connection.timeout_s, "recovery"):
            return
    raise CommunicationError(
        f"rank {connection.rank}: communication cannot be opened again. Restart the cluster."
    ) from problem


def _give_up_links(connection: Connection) -> None:
    """When all ranks that live are here. Nothing is drained: no later link meets these."""
    connection.close()
    for link in connection.lane_links:
        survival.revoke(link)
    _under_way.append(connection.engine)
    deadline = time.monotonic() + _SENDS_END_S
    while any(map(_sends, _under_way)) and time.monotonic() < deadline:
        time.sleep(1e-3)
    _under_way[:] = filter(_sends, _under_way)
    with mpi.turn():
        for link in connection.lane_links:
            link.Free()
    connection.lane_links = []
    connection.abandoned.clear()


def _sends(engine: _kernels.Engine) -> bool:
    return not all(map(engine.sends_done, range(engine.lanes)))


def _leave_dead(connection: Connection, before: MPI.Intracomm) -> MPI.Intracomm:
    """Makes those that live the members, and gives their communicator."""
    parent = connection.parent = survival.without_dead(before)
    if parent.size < before.size:
        before_ranks = survival.ranks_before(before, parent)
        connection.set_seats(tuple(connection.seats[rank] for rank in before_ranks))
    with mpi.turn():
        before.Free()
    return parent


def _problem_of_opening(connection: Connection, parent: MPI.Intracomm) -> Exception | None:
    """Opens links; if that fails, says why, and frees the others from waiting for this rank."""
    from mpi4py import MPI

    try:
        _agree(connection, parent)
        connection.open()
    except (MPI.Exception, CommunicationError, RuntimeError) as error:
        survival.revoke(parent)
        return error
    return None
