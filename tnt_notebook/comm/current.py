"""The world of this process: all ranks of its MPI job, or the process alone."""

from __future__ import annotations

import atexit
import contextlib
import os
import sys
import threading
from collections.abc import Iterator
from typing import Any

from tnt_notebook.comm import mpi, survival
from tnt_notebook.comm.world import DEFAULT_TIMEOUT_S, World
from tnt_notebook.error_text import brief

_world: World | None = None
_world_lock = threading.Lock()


def world() -> World:
    """The world that this process belongs to: all ranks of the MPI job, or the process alone."""
    global _world
    with _world_lock:
        if _world is None:
            _world = _start_world()
        return _world


@contextlib.contextmanager
def use(other: World) -> Iterator[World]:
    """Makes ``other`` the world of this process inside the ``with`` block."""
    global _world
    before, _world = _world, other
    try:
        yield other
    finally:
        _world = before


def rank() -> int:
    """This process's place in its world, 0 to size - 1."""
    return world().rank


def size() -> int:
    """How many ranks there are."""
    return world().size


def abort(reason: str) -> None:
    """Tells all other ranks that this one failed; nothing where no communication has begun."""
    if _world is not None and _world.size > 1:
        _world.abort(reason)


def survives() -> bool:
    """Whether the other ranks of this job outlive the death of one, and can go on without it."""
    return mpi.launched() and survival.survives()


def _start_world() -> World:
    timeout_s = float(os.environ.get("TNT_TIMEOUT", DEFAULT_TIMEOUT_S))
    if not mpi.launched() and "mpi4py.MPI" not in sys.modules:
        started = World(timeout_s=timeout_s)
    else:
        from mpi4py import MPI

        by = MPI.Comm.Get_parent()
        if by != MPI.COMM_NULL:
            started = World.joined(by, timeout_s)
        else:
            started = World(MPI.COMM_WORLD if MPI.COMM_WORLD.size > 1 else None, timeout_s)
    atexit.register(started.close)
    if started.size > 1:
        _abort_on_uncaught_exception(started)
    return started


def _abort_on_uncaught_exception(started: World) -> None:
    """A script that dies of an exception on one rank ends on all, and nobody is left waiting."""
    before = sys.excepthook

    def hook(kind: type[BaseException], error: BaseException, traceback: Any) -> None:
        before(kind, error, traceback)
        sys.stdout.flush()
        if not getattr(error, "peers_know", False):
            started.abort(f"rank {started.rank}: {brief(error)}")
        started.leave_failed(grace_s=2)

    sys.excepthook = hook
