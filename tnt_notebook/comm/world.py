"""The ranks of this program, and collectives on NumPy arrays between them."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from tnt_notebook.comm import mpi
from tnt_notebook.errors import CommunicationError, PeerError

if TYPE_CHECKING:
    from mpi4py import MPI

    from tnt_notebook.comm import _kernels

DEFAULT_TIMEOUT_S = 600.0

#: Channel of the calls below. Those inside TensorFlow graphs are counted from ops.FIRST_CHANNEL.
_EAGER_CHANNEL = 0

#: One record of :meth:`World.trace`; times in nanoseconds of CLOCK_MONOTONIC.
EVENT = np.dtype(
    [("begin_ns", "u8"), ("end_ns", "u8"), ("bytes", "u8"), ("kind", "u4"), ("channel", "u4")]
)
#: The names of an event's ``kind``, in order.
EVENT_KINDS = ("ready", "copy_in", "exchange", "copy_out", "step")


class World:
    """Ranks that work together, each a process.

    All methods named after a collective must be called by all ranks, in the same order. They wait,
    with Ctrl-C working; after ``timeout_s`` seconds without a message they raise. When another
    rank fails they raise :class:`~tnt_notebook.errors.PeerError` at once, and go on doing so until
    all ranks have called :meth:`recover`.

    Args:
        communicator: an mpi4py communicator, duplicated here; ``None``: this process alone.
        timeout_s: seconds that an operation may wait for one message.

    Attributes:
        rank, size: place of this process, and how many there are.
        id: number by which TensorFlow ops find this world.
    """

    _ids = itertools.count()

    def __init__(
        self, communicator: MPI.Comm | None = None, timeout_s: float = DEFAULT_TIMEOUT_S
    ) -> None:
        self.id = next(World._ids)
        self.timeout_s = timeout_s
        self._lock = threading.Lock()
        self._abandoned: list[Any] = []  # memory of calls that were interrupted
        self._parent = None if communicator is None else communicator.Dup()
        self._open()
        self.rank: int = self._engine.rank
        self.size: int = self._engine.size

    def __repr__(self) -> str:
        return f"<World: rank {self.rank} of {self.size}>"

    # -- collectives ------------------------------------------------------------------------------

    def allreduce(self, array: Any, op: str = "sum", scale: float = 1.0) -> np.ndarray:
        """The element-wise reduction over all ranks, of ``scale * array``, on every rank.

        Args:
            array: float32, float64, bfloat16, float16, int32 or int64; any shape, the same on
                all ranks.
            op: ``"sum"``, ``"min"`` or ``"max"``.
            scale: factor of this rank; with 0 the rank contributes zeros (even for NaN).

        Returns:
            A new array; the same bits on all ranks.
        """
        result = np.array(array, order="C", copy=True)
        label = f"allreduce of {result.dtype}{list(result.shape)}"
        self._run(
            lambda engine: engine.allreduce(
                _EAGER_CHANNEL, label, result.ctypes.data, result.size, str(result.dtype), op, scale
            ),
            label,
            result,
        )
        return result

    def broadcast(self, array: np.ndarray, root: int = 0) -> np.ndarray:
        """The array of rank ``root``, on every rank. Shape and dtype must be the same on all."""
        result = np.array(array, order="C", copy=True)
        label = f"broadcast of {result.dtype}{list(result.shape)} from rank {root}"
        self._run(
            lambda engine: engine.broadcast(
                _EAGER_CHANNEL, label, result.ctypes.data, result.nbytes, self._checked_root(root)
            ),
            label,
            result,
        )
        return result

    def allgather(self, block: bytes) -> list[bytes]:
        """The blocks of all ranks, in rank order; they may differ in length."""
        lengths = np.zeros(self.size, np.int64)
        lengths[self.rank] = len(block)
        lengths = self.allreduce(lengths)
        label = f"allgather of {len(block)} bytes"
        joined = self._run(lambda e: e.allgather(_EAGER_CHANNEL, label, block), label, block).result
        ends = np.cumsum(lengths).tolist()
        return [joined[end - n : end] for end, n in zip(ends, lengths.tolist(), strict=True)]

    def broadcast_bytes(self, message: bytes, root: int = 0) -> bytes:
        """The message of rank ``root``, of any length, on every rank."""
        length = int(self.broadcast(np.array(len(message), np.int64), root))
        memory = np.zeros(length, np.uint8)
        if self.rank == root:
            memory[:] = np.frombuffer(message, np.uint8)
        return self.broadcast(memory, root).tobytes()

    def barrier(self) -> None:
        """Returns when all ranks have called it."""
        self._run(lambda engine: engine.barrier(_EAGER_CHANNEL, "barrier"), "barrier", None)

    def set_timeout(self, timeout_s: float) -> None:
        """Sets how many seconds an operation may wait for one message, from now on."""
        if not timeout_s > 0:
            raise ValueError(f"the time-out must be a positive number of seconds, not {timeout_s}")
        self.timeout_s = timeout_s
        self._engine.set_timeout(timeout_s)

    # -- failures ---------------------------------------------------------------------------------

    @property
    def failure(self) -> str | None:
        """Why communication has ended, or ``None``."""
        return self._engine.failure or None

    def abort(self, reason: str) -> None:
        """Ends all waiting on all ranks: their collectives raise PeerError with ``reason``."""
        self._engine.abort(reason)

    def recover(self) -> None:
        """Makes communication work again after a failure. Collective; nothing to do is cheap."""
        if self._parent is None:
            if self.failure:
                self._engine.close()
                self._open()
            return
        failed = np.array([self.failure is not None], np.int32)
        anywhere = np.empty_like(failed)
        from mpi4py import MPI

        mpi.wait(self._parent.Iallreduce(failed, anywhere, MPI.MAX), self.timeout_s, "recovery")
        if not anywhere[0]:
            return
        self._engine.close()
        mpi.drain(self._engine, self._link, self._parent, timeout_s=10)
        self._link.Free()
        self._abandoned.clear()
        self._open()

    def error(self, label: str) -> Exception:
        """The exception that says why ``label`` did not complete on this rank."""
        reason = self.failure or "communication is closed"
        if reason.startswith(f"rank {self.rank}:"):
            return CommunicationError(f"{reason} ({label})")
        return PeerError(f"rank {self.rank} was freed from waiting in {label}, because {reason}")

    # -- beside the collectives -------------------------------------------------------------------

    def notify(self, peer: int, kind: int, payload: bytes) -> None:
        """Sends a small message (at most 8 KB) to one rank, without waiting."""
        from tnt_notebook.comm import _kernels

        self._engine.notify(peer, _kernels.first_user_kind + kind, payload)

    def notices(self) -> list[tuple[int, int, bytes]]:
        """What :meth:`notify` has brought here since the last call: (source, kind, payload)."""
        from tnt_notebook.comm import _kernels

        found = iter(self._engine.take_notice, None)
        return [(source, kind - _kernels.first_user_kind, data) for source, kind, data in found]

    def trace(self) -> np.ndarray:
        """The newest events of the backend on this rank, an array of dtype :data:`EVENT`."""
        return np.frombuffer(self._engine.trace(), EVENT)

    def record_step(self, begin_ns: int, end_ns: int) -> None:
        """Puts a training step into the trace."""
        self._engine.record_step(begin_ns, end_ns)

    def close(self) -> None:
        """Stops the progress thread; the other ranks are not told."""
        from tnt_notebook.comm import _kernels

        self._engine.close()
        _kernels.register_engine(self.id, None)

    def leave_failed(self, grace_s: float) -> None:
        """Before this process exits with an error: waits until the other ranks do so as well, and
        ends the MPI job if one has not after ``grace_s`` seconds (MPI_Finalize would wait for it).
        """
        if self._parent is None:
            return
        from mpi4py import MPI

        try:
            mpi.wait(self._parent.Ibarrier(), grace_s, "leaving")
        except CommunicationError:
            MPI.COMM_WORLD.Abort(1)

    # -- inside -----------------------------------------------------------------------------------

    def _open(self) -> None:
        from tnt_notebook.comm import _kernels

        if self._parent is None:
            self._engine: _kernels.Engine = _kernels.local_engine(self.timeout_s)
        else:
            self._link = self._parent.Dup()
            self._engine = mpi.engine(self._link, self.timeout_s)
        _kernels.register_engine(self.id, self._engine)

    def _run(
        self, start: Callable[[_kernels.Engine], _kernels.Pending], label: str, memory: Any
    ) -> _kernels.Pending:
        with self._lock:
            if self.failure:
                raise self.error(label)
            pending = start(self._engine)
            try:
                while not pending.wait(0.1):
                    pass
            except BaseException as error:
                # The backend may still write there; and the other ranks are out of step now.
                self._abandoned.append(memory)
                self.abort(f"rank {self.rank}: {type(error).__name__} in {label}")
                raise
            if pending.failure:
                raise self.error(label)
            return pending

    def _checked_root(self, root: int) -> int:
        if not 0 <= root < self.size:
            raise ValueError(f"rank {root} is not one of 0 to {self.size - 1}")
        return root
