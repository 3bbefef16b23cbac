"""Some ranks of a world, and memory of theirs that they share."""

from __future__ import annotations

import ctypes
import threading
from typing import TYPE_CHECKING, Any

import numpy as np

from tnt_notebook.comm.collectives import Collectives, Prepared, reduction_number, type_number
from tnt_notebook.errors import CommunicationError

if TYPE_CHECKING:
    from tnt_notebook.comm import _kernels
    from tnt_notebook.comm.world import World


class Group(Collectives):
    """Some ranks of a world, numbered anew; made by :meth:`World.split`.

    Attributes:
        rank, size: place of this process in the group, and how many are in it.
        ranks: the members' ranks in the world.
        world: the world.
    """

    def __init__(self, world: World, number: int, channel: int) -> None:
        self.world = world
        self.ranks = world._groups[number]
        self._era = world.era
        self.rank = self.ranks.index(world.rank)
        self.size = len(self.ranks)
        self._number = number
        self._channel = channel
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        return f"<Group: rank {self.rank} of {self.size}, ranks {self.ranks} of the world>"

    @property
    def node(self) -> tuple[int, ...]:
        """The number of each member's node; ranks of one node share memory."""
        return tuple(self.world.node[rank] for rank in self.ranks)

    @property
    def id(self) -> int:
        """The number by which TensorFlow ops find this group in its world."""
        self._check_era()
        return self.world._group_ids[self._number]

    @property
    def _prepared(self) -> dict[tuple[Any, ...], Prepared]:  # type: ignore[override]
        self._check_era()
        return self.world._prepared_of_groups[self._number]

    def _check_era(self) -> None:
        if self._era != self.world.era:
            raise CommunicationError(
                f"Ranks have died since this group of ranks {self.ranks} was made, and the others "
                "are numbered anew. Split the world again."
            )

    def _prepare(self, label: str, **request: Any) -> _kernels.Operation:
        from tnt_notebook.comm import _kernels

        return _kernels.Operation(
            engine=self.world._engine, channel=self._channel, group=self.id, label=label, **request
        )

    def _run(self, prepared: Prepared, array: np.ndarray, output: np.ndarray | None) -> None:
        with self._lock:
            self.world._carry_out(prepared, array, output)


class Bucket:
    """Memory within reach of the ranks of a node; made by :meth:`World.bucket`.

    Attributes:
        array: the memory, a flat array.
    """

    def __init__(self, world: World, count: int, dtype: np.dtype, channel: int) -> None:
        from tnt_notebook.comm import _kernels

        label = f"allreduce in place of {dtype}[{count}]"
        self._world = world
        self._label = label
        self._bucket = _kernels.SharedBucket(
            world._engine, channel, type_number(dtype), count, label
        )
        memory: Any = (ctypes.c_byte * (count * dtype.itemsize)).from_address(self._bucket.address)
        memory._owner = self._bucket  # lives as long as any view of it
        self.array: np.ndarray = np.frombuffer(memory, dtype)

    def allreduce(
        self, op: str = "sum", scale: float = 1.0, algorithm: str | None = None
    ) -> np.ndarray:
        """Reduces ``scale * array`` over all ranks, in place, and returns the array."""
        reduction, scale = reduction_number(op, self.array.dtype, scale, self._world.size)
        try:
            failure = self._bucket.allreduce(reduction, scale, algorithm or "")
        except BaseException as error:
            if not refused(error, self._bucket.is_busy):
                rank, kind = self._world.rank, type(error).__name__
                self._world.abort(f"rank {rank}: {kind} in {self._label}")
            raise
        if failure:
            raise self._world.error(self._label)
        return self.array


def refused(error: BaseException, is_busy: bool) -> bool:
    """Whether a call was not carried out: then the ranks are still in step.

    What a signal handler raises may look the same, but leaves the operation under way.
    """
    return isinstance(error, ValueError | IndexError | TypeError) and not is_busy
