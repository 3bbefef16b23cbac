"""Collectives on NumPy arrays, for a world and for groups of its ranks."""

from __future__ import annotations

import functools
import itertools
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tnt_notebook.choices import DTYPES

if TYPE_CHECKING:
    from tnt_notebook.comm import _kernels

#: In the order of the backend's numbers, as are its element types in choices.py.
REDUCTIONS = ("sum", "min", "max", "product")
COLLECTIVES = (
    "allreduce", "reduce_scatter", "allgather", "broadcast", "reduce", "alltoall", "barrier",
)  # fmt: skip

_TYPE = {name: number for number, name in enumerate(DTYPES)}
_REDUCTION = {name: number for number, name in enumerate(REDUCTIONS)}
_COLLECTIVE = {name: number for number, name in enumerate(COLLECTIVES)}
_FLOATS = ("float32", "float64", "bfloat16", "float16")

#: Whatever makes the schedule of one rank: the name of an algorithm of the backend
#: (:func:`tnt_notebook.comm.schedules.names`), a function (see :mod:`tnt_notebook.comm.schedules`),
#: or ``None``, which chooses by size, number of ranks and topology.
Algorithm = str | Callable[..., Any] | None


#: After so many different calls what they have prepared is dropped.
MOST_PREPARED = 1024


class Prepared(NamedTuple):
    """A collective that has been called before."""

    operation: _kernels.Operation
    label: str
    opaque: bool  # NumPy shows memory of this dtype only as that of another


class Collectives(ABC):
    """What ranks can do together.

    All ranks must make the same calls in the same order. They wait, with Ctrl-C working; after the
    time-out without a message they raise. When another rank fails they raise
    :class:`~tnt_notebook.errors.PeerError` at once.

    Arrays are float32, float64, bfloat16, float16, int32, int64 or uint8, of any shape. Results are
    new arrays, with the same bits on all ranks. ``op`` is ``"sum"``, ``"mean"`` (floats only),
    ``"min"``, ``"max"`` or ``"product"``. ``algorithm``: see :data:`Algorithm`.
    """

    rank: int
    size: int

    @property
    @abstractmethod
    def node(self) -> tuple[int, ...]:
        """The number of each rank's node; ranks of one node share memory."""

    #: What has been called before, by what makes a call a different one. Gone with the engine.
    _prepared: dict[tuple[Any, ...], Prepared]

    @abstractmethod
    def _prepare(self, label: str, **request: Any) -> _kernels.Operation:
        """A collective on this world's or group's channel."""

    @abstractmethod
    def _run(self, prepared: Prepared, array: np.ndarray, output: np.ndarray | None) -> None:
        """Carries out one collective; raises if it does not complete."""

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
        key = (collective, array.dtype, array.shape, count, op, scale, offsets, root, algorithm)
        prepared = self._prepared.get(key)
        if prepared is None:
            if len(self._prepared) >= MOST_PREPARED:
                self._prepared.clear()
            prepared = self._prepared[key] = self._prepare_for(array, output, *key)
        if prepared.opaque:
            array = array.view(np.uint16)
            output = None if output is None else output.view(np.uint16)
        self._run(prepared, array, output)

    def _prepare_for(
        self,
        array: np.ndarray,
        output: np.ndarray | None,
        collective: str,
        dtype: np.dtype,
        shape: tuple[int, ...],
        count: int,
        op: str,
        scale: float,
        offsets: tuple[int, ...],
        root: int,
        algorithm: Algorithm,
    ) -> Prepared:
        if not 0 <= root < self.size:
            raise ValueError(f"rank {root} is not one of 0 to {self.size - 1}")
        number = type_number(dtype)
        reduction, scale = reduction_number(op, dtype, scale, self.size)
        schedule, agreed = None, 0
        if callable(algorithm):
            from tnt_notebook.comm import schedules

            schedule, agreed = schedules.made_by(
                algorithm, collective, self, count, dtype.itemsize, offsets, root,
                array.size, 0 if output is None else output.size,
            )  # fmt: skip
        label = f"{collective} of {dtype}{list(shape)}" if array.size else collective
        operation = self._prepare(
            label,
            collective=_COLLECTIVE[collective],
            type=number,
            reduction=reduction,
            scale=scale,
            count=count,
            offsets=offsets,
            root=root,
            algorithm=algorithm if isinstance(algorithm, str) else "",
            schedule=schedule,
            agreed=agreed,
        )
        return Prepared(operation, label, opaque=dtype.name == "bfloat16")


@functools.cache
def type_number(dtype: np.dtype) -> int:
    """The backend's number of a dtype; raises TypeError if it cannot be exchanged."""
    number = _TYPE.get(dtype.name)
    if number is None or not dtype.isnative:
        raise TypeError(f"{dtype} cannot be exchanged; it must be one of {', '.join(DTYPES)}")
    return number


def reduction_number(op: str, dtype: np.dtype, scale: float, size: int) -> tuple[int, float]:
    """The backend's number of a reduction, and the scale that goes with it."""
    if op == "mean":
        if dtype.name not in _FLOATS:
            raise TypeError(f"the mean of {dtype} is not a {dtype}: use sum, or convert to floats")
        return _REDUCTION["sum"], scale / size
    if op not in _REDUCTION:
        raise ValueError(f"op {op!r} is not one of sum, mean, min, max, product")
    return _REDUCTION[op], scale


def _offsets(counts: Iterable[int]) -> tuple[int, ...]:
    return (0, *itertools.accumulate(counts))
