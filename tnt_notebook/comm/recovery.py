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

from tnt_notebook.comm import mpi, survival
from tnt_notebook.errors import CommunicationError

if TYPE_CHECKING:
    from mpi4py import MPI

    from tnt_notebook.comm import _kernels
    from tnt_notebook.comm.world import World

#: To open links, beside those that end with the death of a rank.
_ATTEMPTS = 3

#: Seconds in which sends over links that are given up usually end.
_SENDS_END_S = 2.0

#: Engines whose memory MPI may still read.
_under_way: list[_kernels.Engine] = []


def recover_with_all(world: World, parent: MPI.Intracomm) -> None:
    """Of a job that does not outlive the death of a rank. Collective."""
    from mpi4py import MPI

    # A rank that failed may have made fewer groups and buckets than the others.
    own = np.array([world.failure is not None, world._channels_taken], np.int32)
    all_ = np.empty_like(own)
    with mpi.turn():
        request = parent.Iallreduce(own, all_, MPI.MAX)
    mpi.wait(request, world.timeout_s, "recovery")
    world._channels_taken = int(all_[1])
    if not all_[0]:
        return
    world._close()
    # Over GPI-2 what is under way reaches no later transport.
    if world.links.network == "mpi":
        for lane, link in enumerate(world._links):
            mpi.drain(world._engine, lane, link, parent, timeout_s=10)
    with mpi.turn():
        for link in world._links:
            link.Free()
    world._abandoned.clear()
    world._open()


def recover_without_dead(world: World, parent: MPI.Intracomm) -> None:
    """Of a job that outlives the death of ranks. Collective over those that live."""
    if not survival.all_fine(parent, world.failure is None, world.timeout_s, "recovery"):
        _begin_again(world, parent)


def grow(world: World, parent: MPI.Intracomm, command: Callable[[int], Sequence[str]]) -> None:
    """Starts ranks for the seats that are vacant. Collective."""
    from mpi4py import MPI

    vacant = [(seat, list(command(seat)), world._hosts_of_seats[seat]) for seat in world.lost]
    problem = None
    try:
        seated = _fill(_Seated(parent, world._seats, world.members), vacant, world.timeout_s)
    except (MPI.Exception, CommunicationError) as error:
        problem = error
    if not survival.all_fine(parent, problem is None, world.timeout_s, "starting ranks"):
        raise CommunicationError(
            f"The ranks for the seats {list(world.lost)} did not begin. Restart the cluster."
        ) from problem
    _give_up_links(world)
    _enter(world, seated)
    with mpi.turn():
        parent.Free()


def join(world: World, by: MPI.Intercomm) -> None:
    """What a rank does that was started by :func:`grow`, while the others do that."""
    mpi.give_up()
    seated = _fill(*_take_seat(by, None, [], world.timeout_s), world.timeout_s)
    _give_up_links(world)
    _enter(world, seated)


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


def _enter(world: World, seated: _Seated) -> None:
    world._parent, world._seats, world.members = seated
    world.era += 1
    world._groups.clear()
    problem = _problem_of_opening(world, seated.comm)
    if not survival.all_fine(seated.comm, problem is None, world.timeout_s, "recovery"):
        _begin_again(world, seated.comm)
    world.load_rules()


def _begin_again(world: World, parent: MPI.Intracomm) -> None:
    problem = None
    # More ranks may die meanwhile: each time those that live begin again.
    for _ in range(parent.size + _ATTEMPTS):
        _give_up_links(world)
        parent = _leave_dead(world, parent)
        problem = _problem_of_opening(world, parent)
        if survival.all_fine(parent, problem is None, world.timeout_s, "recovery"):
            return
    raise CommunicationError(
        f"rank {world.rank}: communication cannot be opened again. Restart the cluster."
    ) from problem


def _give_up_links(world: World) -> None:
    """When all ranks that live are here. Nothing is drained: no later link meets these."""
    world._close()
    for link in world._links:
        survival.revoke(link)
    _under_way.append(world._engine)
    deadline = time.monotonic() + _SENDS_END_S
    while any(map(_sends, _under_way)) and time.monotonic() < deadline:
        time.sleep(1e-3)
    _under_way[:] = filter(_sends, _under_way)
    with mpi.turn():
        for link in world._links:
            link.Free()
    world._links = []
    world._abandoned.clear()


def _sends(engine: _kernels.Engine) -> bool:
    return not all(map(engine.sends_done, range(engine.lanes)))


def _leave_dead(world: World, before: MPI.Intracomm) -> MPI.Intracomm:
    """Makes those that live the members, and gives their communicator."""
    parent = world._parent = survival.without_dead(before)
    if parent.size < before.size:
        mpi.give_up()
        places = survival.places(before, parent)
        world.members = tuple(world.members[place] for place in places)
        world.era += 1
        world._groups.clear()
    with mpi.turn():
        before.Free()
    return parent


def _problem_of_opening(world: World, parent: MPI.Intracomm) -> Exception | None:
    """Opens links; if that fails, says why, and frees the others from waiting for this rank."""
    from mpi4py import MPI

    try:
        taken = np.array([world._channels_taken], np.int32)
        most = np.empty_like(taken)
        with mpi.turn():
            request = parent.Iallreduce(taken, most, MPI.MAX)
        mpi.wait(request, world.timeout_s, "recovery")
        world._channels_taken = int(most[0])
        world._open()
    except (MPI.Exception, CommunicationError, RuntimeError) as error:
        survival.revoke(parent)
        return error
    return None
