"""Ranks that die, and how the others go on: Open MPI's ULFM (user-level failure mitigation).

With ``mpiexec --with-ft ulfm`` a rank that dies does not take the others along: calls that need it
raise, and the others can agree on what they know and make a communicator without it (W. Bland et
al., "Post-failure recovery of MPI communication capability", IJHPCA 27, 2013). Other MPI libraries,
and other launchers, end all ranks.
"""

from __future__ import annotations

import functools
import os
import threading
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from tnt_notebook.comm import mpi
from tnt_notebook.errors import CommunicationError

if TYPE_CHECKING:
    from mpi4py import MPI

_ENABLED = "OMPI_MCA_mpi_ft_enable"

#: Seconds that making a communicator, or starting ranks, may take once all ranks are there.
_CALL_S = 120.0

#: Seconds without a death after which no more are expected.
_CALM_S = 0.1

T = TypeVar("T")


@functools.cache
def survives() -> bool:
    """Whether the other ranks of this job outlive the death of one."""
    from mpi4py import MPI

    # Set by mpiexec for its ranks; a step of Slurm ends with its first rank, whatever it says.
    asked = os.environ.get(_ENABLED, "0").lower() in ("1", "true", "yes")
    by_mpiexec = os.environ.get("PMIX_NAMESPACE", "").startswith("prte")
    return asked and by_mpiexec and MPI.get_vendor()[0] == "Open MPI"


def all_fine(comm: MPI.Comm, fine: bool, timeout_s: float, what: str) -> bool:
    """Whether all ranks are fine and none has died: the same answer on all that live. Collective.

    Raises:
        CommunicationError: a rank that lives does not come within ``timeout_s`` seconds.
    """
    from mpi4py import MPI

    flag = np.array([fine], np.int32)
    try:
        mpi.carry_out(lambda: comm.Iagree(flag), timeout_s, what)
    except MPI.Exception:  # a rank has died, and all are told so
        return False
    return bool(flag[0])


def without_dead(comm: MPI.Intracomm) -> MPI.Intracomm:
    """A new communicator of the ranks that live, in the same order. Collective over these."""
    _await_calm(comm)
    shrunk: Any = bounded(comm.Shrink, "agree on who they are")
    return shrunk


def spawned(comm: MPI.Intracomm, command: Sequence[str], host: str) -> MPI.Intercomm:
    """Starts a process on a host. Collective.

    Returns:
        These ranks, and the one that was started, when it has initialised MPI.
    """
    from mpi4py import MPI

    # The slots of the dead are not given back.
    info = MPI.Info.Create({"host": host, "map_by": ":OVERSUBSCRIBE"})
    program, *arguments = command
    started = bounded(lambda: comm.Spawn(program, arguments, 1, info), "start others")
    info.Free()
    return started


def ranks_before(old: MPI.Comm, new: MPI.Comm) -> list[int]:
    """Of each rank of a communicator, its rank in the one that it was made from."""
    was, now = old.Get_group(), new.Get_group()
    found = now.Translate_ranks(list(range(new.size)), was)
    was.Free()
    now.Free()
    return list(found)


def revoke(comm: MPI.Comm) -> None:
    """Ends all that waits in a communicator, on all ranks; agreement in it is still possible."""
    from mpi4py import MPI

    try:
        with mpi.turn():
            comm.Revoke()
    except MPI.Exception as error:
        raise CommunicationError(f"a communicator could not be given up: {error}") from error


def bounded(call: Callable[[], T], what: str) -> T:
    """The result of a call of MPI of which there is no nonblocking form in Open MPI 5.

    Raises:
        CommunicationError: it fails, or does not end in time.
    """
    made: list[T] = []
    failed: list[Exception] = []

    def make() -> None:
        try:
            with mpi.turn():
                made.append(call())
        except Exception as error:
            failed.append(error)

    thread = threading.Thread(target=make, daemon=True)
    thread.start()
    thread.join(_CALL_S)
    if made:
        return made[0]
    why = str(failed[0]) if failed else f"no answer within {_CALL_S:.0f} s"
    raise CommunicationError(f"The ranks cannot {what} ({why}). Restart the cluster.")


def _await_calm(comm: MPI.Comm) -> None:
    """Waits until no more ranks die, if some have.

    Ranks often die together, and Open MPI 5.0 crashes if it hears of a death just when it makes a
    communicator.
    """
    from mpi4py import MPI

    known = 0
    while True:
        with mpi.turn():
            group = comm.Get_failed()
            dead = group.size
            if dead:  # the empty group is not to be freed
                group.Free()
        if dead <= known:
            return
        known = dead
        until = time.monotonic() + _CALM_S
        while time.monotonic() < until:
            with mpi.turn():
                MPI.COMM_SELF.Iprobe()  # any call moves MPI
            time.sleep(1e-3)
