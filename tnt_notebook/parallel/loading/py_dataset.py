"""Batches of a ``PyDataset``, made by as many threads as it has workers."""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Generator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import keras
import numpy as np

from tnt_notebook.parallel.data import HasRows, Replica, Share, share_of


def batches_of(
    dataset: keras.utils.PyDataset, over: Replica
) -> Generator[tuple[Any, Share], None, None]:
    """``(batch, Share)`` without end, in order. Its own ``on_epoch_end`` is not called, which may
    shuffle: what ``fit`` reads later stays the same on all ranks."""

    def made(number: int) -> tuple[Any, Share]:
        if isinstance(dataset, HasRows):
            total = int(dataset.samples_of(number))
            begin, end = share_of(total, over)
            rows = dataset.rows_of(number, begin, max(end, begin + 1))
            return rows, Share(begin, end - begin, total, 0)
        batch = dataset[number]
        return batch, Share.of(len(np.asarray(keras.tree.flatten(batch)[0])), over, 0)

    count = dataset.num_batches
    numbers = itertools.count() if count is None else itertools.cycle(range(count))
    if count == 0:
        raise ValueError("it has no element")
    workers = max(1, dataset.workers)
    under_way: deque[Future[tuple[Any, Share]]] = deque()
    with ThreadPoolExecutor(workers) as threads:
        try:
            for number in numbers:
                under_way.append(threads.submit(made, number))
                if len(under_way) > max(workers, min(dataset.max_queue_size, 2 * workers)):
                    yield under_way.popleft().result()
        finally:
            for one in under_way:
                one.cancel()
