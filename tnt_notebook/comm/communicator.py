"""Ranks that work together, and collectives on NumPy arrays between them."""

from __future__ import annotations

import itertools
import math
import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from tnt_notebook.comm import _kernels, schedules
from tnt_notebook.comm.buckets import Bucket
from tnt_notebook.comm.connection import Connection, Prepared
from tnt_notebook.comm.numbers import COLLECTIVES, reduction_number, type_number
from tnt_notebook.errors import CommunicationError

#: Whatever makes the schedule of one rank: the name of an algorithm of the backend
#: (:func:`tnt_notebook.comm.schedules.names`), a function (see :mod:`tnt_notebook.comm.schedules`),
#: or ``None``, which chooses by size, number of ranks and topology.
Algorithm = str | Callable[..., Any] | None

#: After so many different calls what they have prepared is dropped.
MOST_PREPARED = 1024


class _Call(NamedTuple):
    """What makes a call of a collective a different one."""

    collective: str
    dtype: np.dtype
    shape: tuple[int, ...]
    elements: int
    op: str
    scale: float
    offsets: tuple[int, ...]
    root: int
    algorithm: Algorithm


class Communicator:
    """Ranks that work together: all of a world, or a group of them, numbered anew.

    All ranks must make the same calls in the same order. They wait, with Ctrl-C working; after the
    time-out without a message they raise. When another rank fails they raise
    :class:`~tnt_notebook.errors.PeerError` at once. Errors name ranks of the world.

    Arrays are float32, float64, bfloat16, float16, int32, int64 or uint8, of any shape. Results are
    new arrays, with the same bits on all ranks. ``op`` is ``"sum"``, ``"mean"`` (floats only),
    ``"min"``, ``"max"`` or ``"product"``. ``algorithm``: see :data:`Algorithm`.

    Several may be used at once, each by a thread of its own.

    """

    def __init__(self, connection: Connection, channel: int) -> None:
        self._connection, self._channel = connection, channel
        self._lock = threading.Lock()

    @property
    def members(self) -> Sequence[int]:
        """The members' ranks in the world, ascending."""
        return range(self._connection.engine.size)

    @property
    def rank(self) -> int:
        """Of this process among the members, 0 to size - 1."""
        return self._connection.rank

    @property
    def size(self) -> int:
        """How many members there are."""
        return len(self.members)

    @property
    def id(self) -> tuple[int, int]:
        """The numbers by which TensorFlow ops find the world, and these ranks in it."""
        return self._connection.world, self._group

    @property
    def _group(self) -> int:
        """The number of these ranks in the backend; 0: all."""
        return 0

    @property
    def node(self) -> tuple[int, ...]:
        """The number of each member's node; ranks of one node share memory."""
        return tuple(self._connection.links.node[rank] for rank in self.members)

    @property
    def timeout_s(self) -> float:
        """Seconds that an operation may wait for one message."""
        return self._connection.timeout_s

    # -- what is made of ranks --------------------------------------------------------------------

    def split(self, color: int) -> Group:
        """A group of the members that give the same color. Collective over these ranks alone.

        Groups have all that a world has for its ranks, at the same speed, and can be split again.
        """
        told = self.allgather(np.array([[color, self._connection.channels_taken]], np.int64))
        colors, taken = told.T.tolist()
        members = [rank for rank, other in zip(self.members, colors, strict=True) if other == color]
        return Group(self._connection, tuple(members), self._connection.take_channel(max(taken)))

    def bucket(self, count: int, dtype: Any = "float32", channel: int | None = None) -> Bucket:
        """Memory that the other ranks of this node reach, for an allreduce in place. Collective.

        Args:
            count: elements.
            dtype: one of the dtypes that can be exchanged.
            channel: of its messages, where it may share one; None for one of its own.
        """
        dtype = np.dtype(dtype)
        type_number(dtype)  # what is refused is refused before the ranks talk
        if channel is None:
            taken = max(self.gather_numbers(self._connection.channels_taken))
            channel = self._connection.take_channel(taken)
        return Bucket(self._connection, self._group, self.size, count, dtype, channel)

    # -- failures ---------------------------------------------------------------------------------

    @property
    def failure(self) -> str | None:
        """Why communication has ended, or ``None``."""
        return self._connection.failure

    @property
    def failed_here(self) -> bool:
        """Whether that is an error that this rank has raised, and told the others."""
        return self._connection.failed_here

    def abort(self, reason: str) -> None:
        """Ends all waiting on all ranks of the world: their collectives raise PeerError with
        ``reason``."""
        self._connection.abort(reason)

    def error(self, label: str) -> Exception:
        """The exception that says why ``label`` did not complete on this rank."""
        return self._connection.error(label)

    # -- collectives ------------------------------------------------------------------------------

    def allreduce(
        self, array: Any, op: str = "sum", scale: float = 1.0, algorithm: Algorithm = None
    ) -> np.ndarray:
        """The element-wise reduction over all ranks, of ``scale * array``, on every rank.

        Args:
            array: the same shape and dtype on all ranks.
            scale: factor of this rank; with 0 the rank contributes zeros (even for NaN).
        """
        array = np.asarray(array)
        return self.allreduce_into(np.empty(array.shape, array.dtype), array, op, scale, algorithm)

    def allreduce_into(
        self,
        output: np.ndarray,
        array: np.ndarray,
        op: str = "sum",
        scale: float = 1.0,
        algorithm: Algorithm = None,
    ) -> np.ndarray:
        """As :meth:`allreduce`, into an array of the same shape and dtype, which may be ``array``.

        For arrays that are contiguous it allocates nothing. They may not overlap in part.
        """
        array = np.asarray(array, order="C")
        if output.shape != array.shape or output.dtype != array.dtype:
            raise ValueError(
                f"the output is {output.dtype}{list(output.shape)}, the input "
                f"{array.dtype}{list(array.shape)}"
            )
        self._exchange("allreduce", array, output, output.size, op=op, scale=scale,
                       algorithm=algorithm)  # fmt: skip
        return output

    def reduce(
        self, array: Any, op: str = "sum", root: int = 0, algorithm: Algorithm = None
    ) -> np.ndarray | None:
        """The reduction over all ranks, on rank ``root``; ``None`` on the others."""
        array = np.asarray(array, order="C")
        output = np.empty(array.shape, array.dtype) if self.rank == root else None
        self._exchange("reduce", array, output, array.size, op=op, root=root, algorithm=algorithm)
        return output

    def reduce_scatter(
        self, array: Any, op: str = "sum", algorithm: Algorithm = None
    ) -> np.ndarray:
        """This rank's part of the reduction over all ranks.

        Args:
            array: the same on all ranks; its first axis is cut into as many nearly equal parts as
                there are ranks (as :func:`numpy.array_split` does), and rank r gets part r.
        """
        array = np.asarray(array, order="C")
        if array.ndim == 0:
            raise ValueError("a scalar cannot be scattered")
        rows = [part.size for part in np.array_split(np.arange(len(array)), self.size)]
        width = math.prod(array.shape[1:])
        output = np.empty((rows[self.rank], *array.shape[1:]), array.dtype)
        offsets = _offsets(n * width for n in rows)
        self._exchange("reduce_scatter", array, output, array.size, op=op, offsets=offsets,
                       algorithm=algorithm)  # fmt: skip
        return output

    def broadcast(self, array: Any, root: int = 0, algorithm: Algorithm = None) -> np.ndarray:
        """The array of rank ``root``, on every rank. Shape and dtype must be the same on all."""
        array = np.asarray(array, order="C")
        output = np.empty(array.shape, array.dtype)
        self._exchange("broadcast", array, output, array.size, root=root, algorithm=algorithm)
        return output

    def allgather(self, array: Any, algorithm: Algorithm = None) -> np.ndarray:
        """The arrays of all ranks, concatenated along the first axis in rank order.

        Args:
            array: at least one axis; only the first may differ between ranks.
        """
        array = np.asarray(array, order="C")
        if array.ndim == 0:
            raise ValueError("scalars cannot be concatenated; reshape to [1]")
        type_number(array.dtype)  # raises before the ranks talk
        rows = self.gather_numbers(len(array))
        width = math.prod(array.shape[1:])
        output = np.empty((sum(rows), *array.shape[1:]), array.dtype)
        offsets = _offsets(n * width for n in rows)
        self._exchange("allgather", array, output, output.size, offsets=offsets,
                       algorithm=algorithm)  # fmt: skip
        return output

    def alltoall(self, array: Any, algorithm: Algorithm = None) -> np.ndarray:
        """Block q of rank r becomes block r of rank q.

        Args:
            array: the same shape on all ranks; the first axis is cut into as many equal blocks as
                there are ranks.
        """
        array = np.asarray(array, order="C")
        if array.ndim == 0 or len(array) % self.size:
            raise ValueError(f"the first axis must be a multiple of {self.size}, the ranks")
        output = np.empty(array.shape, array.dtype)
        self._exchange("alltoall", array, output, array.size // self.size, algorithm=algorithm)
        return output

    def barrier(self) -> None:
        """Returns when all ranks have called it."""
        nothing = np.empty(0, np.uint8)
        self._exchange("barrier", nothing, nothing, 0)

    def gather_numbers(self, number: int) -> list[int]:
        """One integer of each rank, in rank order."""
        own, all_ = np.array([number], np.int64), np.empty(self.size, np.int64)
        self._exchange("allgather", own, all_, self.size, offsets=tuple(range(self.size + 1)))
        return all_.tolist()

    def allgather_bytes(self, block: bytes) -> list[bytes]:
        """The blocks of all ranks, in rank order; they may differ in length."""
        lengths = self.gather_numbers(len(block))
        joined = np.empty(sum(lengths), np.uint8)
        offsets = _offsets(lengths)
        self._exchange("allgather", np.frombuffer(block, np.uint8), joined, joined.size,
                       offsets=offsets)  # fmt: skip
        return [joined[a:b].tobytes() for a, b in itertools.pairwise(offsets)]

    def broadcast_bytes(self, message: bytes, root: int = 0) -> bytes:
        """The message of rank ``root``, of any length, on every rank."""
        length = int(self.broadcast(np.array([len(message)], np.int64), root)[0])
        memory = np.zeros(length, np.uint8)
        if self.rank == root:
            memory[:] = np.frombuffer(message, np.uint8)
        return self.broadcast(memory, root).tobytes()

    def _exchange(
        self,
        collective: str,
        array: np.ndarray,
        output: np.ndarray | None,
        count: int,
        *,
        op: str = "sum",
        scale: float = 1.0,
        offsets: tuple[int, ...] = (),
        root: int = 0,
        algorithm: Algorithm = None,
    ) -> None:
        # A tuple is made many times as fast as a named one, which is equal.
        key = (collective, array.dtype, array.shape, count, op, scale, offsets, root, algorithm)
        known = self._connection.prepared(self._group)
        prepared = known.get(key)
        if prepared is None:
            if len(known) >= MOST_PREPARED:
                known.clear()
            prepared = known[key] = self._prepare(_Call(*key), array, output)
        if prepared.opaque:
            array = array.view(np.uint16)
            output = None if output is None else output.view(np.uint16)
        with self._lock:
            self._connection.carry_out(prepared, array, output)

    def _prepare(self, call: _Call, array: np.ndarray, output: np.ndarray | None) -> Prepared:
        dtype, algorithm = call.dtype, call.algorithm
        if not 0 <= call.root < self.size:
            raise ValueError(f"rank {call.root} is not one of 0 to {self.size - 1}")
        number = type_number(dtype)
        reduction, scale = reduction_number(call.op, dtype, call.scale, self.size)
        schedule, agreed = None, 0
        if callable(algorithm):
            task = schedules.Task(
                call.collective, self.rank, self.size, call.elements, dtype.itemsize, call.offsets,
                call.root, self.node,
            )  # fmt: skip
            output_count = 0 if output is None else output.size
            schedule, agreed = schedules.made_by(algorithm, task, array.size, output_count)
        shape = list(call.shape)
        label = f"{call.collective} of {dtype}{shape}" if array.size else call.collective
        operation = _kernels.Operation(
            engine=self._connection.engine, channel=self._channel,
            collective=COLLECTIVES.index(call.collective), type=number, reduction=reduction,
            scale=scale, count=call.elements, offsets=call.offsets, root=call.root,
            group=self._group, algorithm=algorithm if isinstance(algorithm, str) else "",
            schedule=schedule, agreed=agreed, label=label,
        )  # fmt: skip
        return Prepared(operation, label, opaque=dtype.name == "bfloat16")


class Group(Communicator):
    """Some ranks of a world, numbered anew; made by :meth:`Communicator.split`."""

    def __init__(self, connection: Connection, members: tuple[int, ...], channel: int) -> None:
        super().__init__(connection, channel)
        self._members, self._number = members, connection.add_group(members)
        self._rank = members.index(connection.rank)

    @property
    def members(self) -> Sequence[int]:
        return self._members

    @property
    def rank(self) -> int:
        return self._rank  # also when the ranks of the world are numbered anew

    def __repr__(self) -> str:
        return f"<Group: rank {self.rank} of {self.size}, ranks {list(self.members)} of the world>"

    @property
    def _group(self) -> int:
        if self._number not in self._connection.groups:
            raise CommunicationError(
                f"Ranks have died since this group of ranks {list(self.members)} was made, and the "
                "others are numbered anew. Split the world again."
            )
        return self._number


def _offsets(counts: Iterable[int]) -> tuple[int, ...]:
    return (0, *itertools.accumulate(counts))
