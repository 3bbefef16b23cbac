"""What the C++ transport has to know of the MPI library that mpi4py has loaded."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import itertools
import os
import pickle
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from tnt_notebook.comm import _kernels
from tnt_notebook.errors import CommunicationError

if TYPE_CHECKING:
    from mpi4py import MPI

# Set by the launchers (Open MPI, PMIx, MPICH and Intel MPI, Slurm's srun) for every rank.
_RANK_VARIABLES = ("OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "SLURM_PROCID")

#: Of those, and what else makes a child of a rank, if it initialises MPI, take the rank's place.
_RANK_PREFIXES = ("PMIX_", "PMI_", "PMI2_", "HYDI_", "OMPI_COMM_WORLD_", "PRTE_LAUNCHED")


@functools.cache
def launched() -> bool:
    """Whether an MPI launcher started this process."""
    return any(name in os.environ for name in _RANK_VARIABLES)


def initialise() -> None:
    """Initialises MPI, never to be finalized: MPI would wait for the other ranks at this one's end,
    or not tell them of it. To be called before anything imports ``mpi4py.MPI``.
    """
    import mpi4py

    mpi4py.rc.finalize = False
    from mpi4py import MPI  # noqa: F401  which initialises it


def hide_launcher() -> None:
    """From now on what this process starts is no rank: a child that initialised MPI in the name of
    this rank would end it. What is known of the launcher (:func:`launched`) stays known."""
    launched()
    variables = ctypes.POINTER(ctypes.c_char_p).in_dll(ctypes.CDLL(None), "environ")
    # Those too that MPI itself has set, of which os.environ does not know.
    lines = itertools.takewhile(bool, (variables[i] for i in itertools.count()))
    for name in [os.fsdecode(line.partition(b"=")[0]) for line in lines]:
        if name.startswith(_RANK_PREFIXES):
            os.environ.pop(name, None)
            os.unsetenv(name)


def transport(link: MPI.Comm) -> _kernels.Transport:
    """Messages over a private communicator: a duplicate that nobody else uses.

    Without MPI_THREAD_MULTIPLE the backend and this module call MPI one at a time (:func:`turn`);
    what else the process does with MPI must then wait until communication is idle.
    """
    from mpi4py import MPI

    link.Set_errhandler(MPI.ERRORS_RETURN)
    return _kernels.mpi_transport(
        path=MPI.__file__, handle_bytes=MPI._sizeof(MPI.Comm), status_bytes=MPI._sizeof(MPI.Status),
        status_source_at=_status_source_at(), byte_type=MPI._handleof(MPI.BYTE),
        null_request=MPI._handleof(MPI.REQUEST_NULL), any_source=MPI.ANY_SOURCE,
        tag_limit=int(MPI.COMM_WORLD.Get_attr(MPI.TAG_UB) or 32767) - 1, multiple=_multiple(),
        communicator=MPI._handleof(link), rank=link.rank, size=link.size,
    )  # fmt: skip


@contextlib.contextmanager
def turn() -> Iterator[None]:
    """Around calls of MPI: excludes the backend's where MPI is for one thread at a time."""
    if _multiple():
        yield
        return
    _kernels.take_mpi_turn()
    try:
        yield
    finally:
        _kernels.give_mpi_turn()


@functools.cache
def _multiple() -> bool:
    from mpi4py import MPI

    return MPI.Query_thread() >= MPI.THREAD_MULTIPLE


def drain(
    engine: _kernels.Engine, lane: int, link: MPI.Comm, parent: MPI.Comm, timeout_s: float
) -> None:
    """Receives and drops what other ranks had sent over a lane's ``link`` before it failed.

    Collective over ``parent``; the engine is closed. Afterwards no message is under way, and the
    communicator can be freed.
    """
    import numpy as np
    from mpi4py import MPI

    announced = np.empty(link.size, np.uint64)
    sent = np.array(engine.sent(lane), np.uint64)
    carry_out(lambda: parent.Ialltoall(sent, announced), timeout_s, "draining")
    missing = announced - np.array(engine.received(lane), np.uint64)
    status, deadline = MPI.Status(), time.monotonic() + timeout_s
    while missing.any() or not engine.sends_done(lane):
        with turn():
            found = link.Iprobe(MPI.ANY_SOURCE, MPI.ANY_TAG, status)
            if found:
                message = bytearray(status.Get_count(MPI.BYTE))
                link.Recv([message, MPI.BYTE], status.Get_source(), status.Get_tag())
                missing[status.Get_source()] -= np.uint64(1)
        if not found and time.monotonic() > deadline:
            raise CommunicationError(
                f"rank {link.rank}: messages of rank(s) {np.flatnonzero(missing).tolist()} did not "
                f"arrive within {timeout_s:.0f} s after a failure. Restart the cluster."
            )


def carry_out(begin: Callable[[], MPI.Request], timeout_s: float, what: str) -> None:
    """Carries out a nonblocking MPI operation, so that Ctrl-C works and the wait ends."""
    with turn():
        request = begin()
    wait(request, timeout_s, what)


def wait(request: MPI.Request, timeout_s: float, what: str, first_nap_s: float = 1e-5) -> None:
    """Waits for an operation of :func:`carry_out` that was begun; with a nap of 0 it spins."""
    deadline = time.monotonic() + timeout_s
    nap = first_nap_s
    while True:
        with turn():
            if request.Test():
                return
        if time.monotonic() > deadline:
            raise CommunicationError(f"{what}: not all ranks arrived within {timeout_s:.0f} s")
        time.sleep(nap)
        nap = min(2 * nap, 1e-3)


def allgather(comm: MPI.Comm, value: Any, timeout_s: float, what: str) -> list[Any]:
    """The values of all ranks; what pickles, with a bound on the wait."""
    import numpy as np
    from mpi4py import MPI

    own = np.frombuffer(pickle.dumps(value), np.uint8)
    lengths = np.empty(comm.size, np.int64)
    size = np.array([own.size], np.int64)
    carry_out(lambda: comm.Iallgather(size, lengths), timeout_s, what)
    joined = np.empty(lengths.sum(), np.uint8)
    parts = [joined, lengths.astype(int).tolist(), None, MPI.BYTE]
    carry_out(lambda: comm.Iallgatherv(own, parts), timeout_s, what)
    ends = np.cumsum(lengths)
    return [pickle.loads(joined[e - n : e].tobytes()) for e, n in zip(ends, lengths, strict=True)]


def _status_source_at() -> int:
    """The offset of MPI_SOURCE in MPI_Status, which differs between the ABIs."""
    from mpi4py import MPI

    marker = 0x5A5A1234
    status: Any = MPI.Status()
    status.Set_source(marker)
    memory = ctypes.string_at(MPI._addressof(status), MPI._sizeof(MPI.Status))
    return memory.index(marker.to_bytes(4, "little"))
