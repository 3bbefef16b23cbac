"""Memory of ranks within reach of those of their node."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from tnt_notebook.comm import _kernels
from tnt_notebook.comm.connection import Connection, refused
from tnt_notebook.comm.numbers import reduction_number, type_number


class Bucket:
    """Memory within reach of the ranks of a node; made by
    :meth:`.Communicator.bucket`.

    Args:
        group: the number of the group whose ranks reduce it; 0: all ranks.
        size: how many these are.

    Attributes:
        array: the memory, a flat array.
    """

    def __init__(
        self,
        connection: Connection,
        group: int,
        size: int,
        count: int,
        dtype: np.dtype,
        channel: int,
    ) -> None:
        label = f"allreduce in place of {dtype}[{count}]"
        self._connection, self._size, self._label = connection, size, label
        self._bucket = _kernels.SharedBucket(
            connection.engine, group, channel, type_number(dtype), count, label
        )
        memory: Any = (ctypes.c_byte * (count * dtype.itemsize)).from_address(self._bucket.address)
        memory.bucket = self._bucket  # lives as long as any view of it
        self.array: np.ndarray = np.frombuffer(memory, dtype)

    def allreduce(
        self, op: str = "sum", scale: float = 1.0, algorithm: str | None = None
    ) -> np.ndarray:
        """Reduces ``scale * array`` over its ranks, in place, and returns the array."""
        reduction, scale = reduction_number(op, self.array.dtype, scale, self._size)
        try:
            failure = self._bucket.allreduce(reduction, scale, algorithm or "")
        except BaseException as error:
            if not refused(error, self._bucket.is_busy):
                rank, kind = self._connection.rank, type(error).__name__
                self._connection.abort(f"rank {rank}: {kind} in {self._label}")
            raise
        if failure:
            raise self._connection.error(self._label)
        return self.array
