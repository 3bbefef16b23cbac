"""A ``PyDataset`` that can make some rows of a batch: each rank asks it for its own only."""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

import keras
import numpy as np
import tensorflow as tf

from tnt_notebook.parallel.data.shard import MODULUS, Replica, Share, share_of


@runtime_checkable
class HasRows(Protocol):
    """What a ``keras.utils.PyDataset`` has beside its own methods, for ranks to make no more of a
    batch than their own rows."""

    def samples_of(self, batch: int) -> int:
        """How many samples batch number `batch` has, from 0; without making it."""

    def rows_of(self, batch: int, begin: int, end: int) -> Any:
        """Rows [begin, end) of all that ``self[batch]`` gives, in the same structure."""


class Rows(keras.utils.PyDataset):
    """Of each batch of a dataset the rows of this rank, and which share that is.

    Attributes:
        whole: the dataset itself.
    """

    def __init__(self, whole: Any, over: Replica) -> None:
        super().__init__(whole.workers, whole.use_multiprocessing, whole.max_queue_size)
        self.whole, self._over = whole, over

    @property
    def num_batches(self) -> int | None:
        count: int | None = self.whole.num_batches
        return count

    def __getitem__(self, batch: int) -> tuple[Any, np.ndarray]:
        total = int(self.whole.samples_of(batch))
        begin, end = share_of(total, self._over)
        rows = self.whole.rows_of(batch, begin, max(end, begin + 1))  # one is borrowed if need be
        if not isinstance(rows, dict | tuple | list):
            rows = (rows,)
        # Which batch it is tells whether ranks shuffle alike; of its rows they have different ones.
        mark = (total * 31 + batch) % MODULUS
        share = np.array([begin, end - begin, total, mark])
        return tuple(rows) if isinstance(rows, list) else rows, share

    def on_epoch_begin(self) -> None:
        self.whole.on_epoch_begin()

    def on_epoch_end(self) -> None:
        self.whole.on_epoch_end()


def with_shares(batches: tf.data.Dataset) -> tf.data.Dataset:
    """``(rows, Share)`` of what `Rows` gives."""
    return batches.map(
        lambda rows, share: (rows, Share(*tf.unstack(share, num=len(Share._fields))))
    )
