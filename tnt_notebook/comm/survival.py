"""Ranks that die, and how the others go on: Open MPI's ULFM (user-level failure mitigation).

With ``mpiexec --with-ft ulfm`` a rank that dies does not take the others along: calls that need it
raise, and the others can agree on what they know and make a communicator without it (W. Bland et
al., "Post-failure recovery of MPI communication capability", IJHPCA 27, 2013). Other MPI libraries,
and other launchers, end all ranks.
"""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING

import numpy as np

from tnt_notebook.comm import mpi
from tnt_notebook.errors import CommunicationError

if TYPE_CHECKING:
    from mpi4py import MPI

#: Arguments of Open MPI's mpiexec. Over several hosts its hierarchical collectives (han) would
#: crash when a rank dies; and a rank that ends must not wait in MPI_Finalize for one that is dead.
MPIEXEC_ARGUMENTS = (
    *("--with-ft", "ulfm"),
    *("--mca", "coll", "^han"),
    *("--mca", "async_mpi_finalize", "1"),
)

_ENABLED = "OMPI_MCA_mpi_ft_enable"

#: Seconds that making a communicator may take once all ranks are there.
_SHRINK_S = 60.0


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
        with mpi.turn():
            request = comm.Iagree(flag)
        mpi.wait(request, timeout_s, what)
    except MPI.Exception:  # a rank has died, and all are told so
        return False
    return bool(flag[0])


def without_dead(comm: MPI.Comm) -> MPI.Comm:
    """A new communicator of the ranks that live, in the same order. Collective over these."""
    made: list[MPI.Comm | Exception] = []

    def shrink() -> None:
        try:
            with mpi.turn():
                made.append(comm.Shrink())
        except Exception as error:
            made.append(error)

    # There is no nonblocking one in Open MPI 5, and a wait needs a bound.
    thread = threading.Thread(target=shrink, daemon=True)
    thread.start()
    thread.join(_SHRINK_S)
    if not made:
        raise CommunicationError(
            f"The ranks that live could not agree on who they are within {_SHRINK_S:.0f} s. "
            "Restart the cluster."
        )
    if isinstance(made[0], Exception):
        raise CommunicationError(f"The ranks that live cannot go on: {made[0]}") from made[0]
    return made[0]


def places(old: MPI.Comm, new: MPI.Comm) -> list[int]:
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
