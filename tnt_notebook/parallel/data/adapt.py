"""Everything that Keras takes as input, as a dataset of this rank's slices.

Keras's own adapters make the global batches, so order, shuffling and batch sizes are those of one
process. Arrays are not even touched outside of a rank's slice: the adapter batches their indices.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tnt_notebook.keras.adapters import (
    DataAdapter,
    adapter_of,
    dense_arrays,
    index_batches,
    is_of_arrays,
    is_of_tf_data,
    numpy_arrays,
    py_dataset_of,
)  # fmt: skip
from tnt_notebook.keras.datasets import makes_in_python
from tnt_notebook.parallel.data.blocks import Blocks, InBlocks, cut_blocks, gathered_block
from tnt_notebook.parallel.data.fingerprints import (
    fingerprint_of_arrays,
    fingerprint_of_sources,
)
from tnt_notebook.parallel.data.py_dataset_rows import HasRows, Rows, with_shares
from tnt_notebook.parallel.data.reading import Reading
from tnt_notebook.parallel.data.shard import (
    Replica,
    Share,
    fingerprint_of_indices,
    shard,
    unzipped,
)
from tnt_notebook.parallel.data.sharded_pipeline import own_part


def sharded(
    over: Replica | None,
    x: Any,
    y: Any = None,
    sample_weight: Any = None,
    batch_size: int | None = None,
    steps_per_epoch: int | None = None,
    shuffle: Any = False,
    class_weight: dict[int, float] | None = None,
    copies: bool = True,
) -> Sharded:
    """Cuts the input of ``fit``, ``evaluate`` or ``predict`` for this rank.

    Arguments are those of ``keras.Model.fit``; ``batch_size`` is that of the global batch.
    ``over`` is ``None`` where nobody else takes part.

    Args:
        copies: whether arrays of NumPy may be copied whole, so that batches are made faster; else
            rows are taken out of them when they are needed.
    """
    has_rows = isinstance(x, keras.utils.PyDataset) and isinstance(x, HasRows)
    if over is not None and has_rows and class_weight is None:
        x = Rows(x, over)
    adapter = adapter_of(x, y, sample_weight, batch_size, steps_per_epoch, shuffle, class_weight)

    arrays = functools.cache(functools.partial(dense_arrays, adapter))
    in_numpy = None if copies or over is None else numpy_arrays(adapter)

    def made(skipped: int, blocks: Blocks) -> tuple[tf.data.Dataset, Reading]:
        if in_numpy is not None:
            rows = functools.partial(_rows_in_numpy, *in_numpy, blocks)
            return _shard_arrays(adapter, rows, over, skipped), Reading()
        if (skipped or over is not None) and arrays() is not None:
            rows = functools.partial(_rows_of_tensors, arrays(), blocks)
            return _shard_arrays(adapter, rows, over, skipped), Reading()
        dataset = adapter.get_tf_dataset()
        reading = Reading()
        if is_of_tf_data(adapter) and (skipped or over is not None):
            parts, reading = own_part(dataset, over or Replica(0, 1), skipped, blocks)
            return (parts if over is not None else parts.map(lambda rows, _: rows)), reading
        if over is not None:
            if isinstance(x, Rows):
                dataset = with_shares(dataset)
            else:
                dataset, reading = shard(dataset, over), Reading(_kind(adapter))
            if blocks:
                dataset = dataset.map(lambda rows, share: (cut_blocks(rows, blocks), share))
        return (dataset.skip(skipped) if skipped else dataset), reading

    def fingerprint() -> str:
        given = arrays() if in_numpy is None else in_numpy[0]
        if given is not None:
            return fingerprint_of_arrays(given)
        return fingerprint_of_sources(adapter.get_tf_dataset()) if is_of_tf_data(adapter) else ""

    def in_blocks(blocks: Blocks) -> Sharded:
        def marked(skipped: int) -> tuple[tf.data.Dataset, Reading]:
            dataset, reading = made(skipped, blocks)
            if blocks:
                dataset = dataset.map(lambda rows, share: (InBlocks(rows), share))
            return dataset, reading

        dataset, reading = marked(0)
        return Sharded(
            dataset, element, adapter, lambda skipped: marked(skipped)[0], reading, in_blocks,
            fingerprint,
        )  # fmt: skip

    dataset, reading = made(0, ())
    element = dataset.element_spec if over is None else unzipped(dataset.element_spec[0])
    return Sharded(
        dataset, element, adapter, lambda skipped: made(skipped, ())[0], reading, in_blocks,
        fingerprint,
    )  # fmt: skip


class Sharded(DataAdapter):
    """Input of this rank, as Keras's loop takes it in the place of ``x``.

    Attributes:
        dataset: yields ``(slice, Share)``; on one rank the batches themselves.
        steps: global batches in one pass, or ``None`` if unknown.
        element: the structure of a slice, in tf.TensorSpec, with unknown batch sizes.
        adapter: Keras's own, for what it does between epochs.
        without: gives the dataset without so many of its first batches: of arrays nothing is read
            for them, other input is.
        reading: how much of the work of input this rank does.
        in_blocks: gives the same input with blocks of samples, each batch as ``InBlocks``.
        fingerprint: a hash of some samples; empty where none is known before they are made.
    """

    def __init__(
        self,
        dataset: tf.data.Dataset,
        element: Any,
        adapter: Any,
        without: Callable[[int], tf.data.Dataset],
        reading: Reading,
        in_blocks: Callable[[Blocks], Sharded],
        fingerprint: Callable[[], str],
    ) -> None:
        self.steps: int | None = adapter.num_batches
        if self.steps is not None:
            dataset = dataset.apply(tf.data.experimental.assert_cardinality(self.steps))
        self.dataset, self.element, self.adapter = dataset, element, adapter
        self.without, self.reading, self.in_blocks = without, reading, in_blocks
        self.fingerprint = fingerprint

    @property
    def is_made_by_python(self) -> bool:
        """Whether functions in Python make its batches, ahead of the steps and in threads of their
        own."""
        if is_of_tf_data(self.adapter):
            return makes_in_python(self.adapter.get_tf_dataset())
        return not is_of_arrays(self.adapter)

    def get_tf_dataset(self) -> tf.data.Dataset:
        return self.dataset

    def unread(self) -> Sharded:
        """As many batches, for a rank that needs none of them: each is a number."""
        count = self.dataset.cardinality()

        def without(skipped: int) -> tf.data.Dataset:
            if count == tf.data.UNKNOWN_CARDINALITY:
                batches = self.without(skipped) if skipped else self.dataset
                return batches.map(lambda *_: tf.constant(0, tf.int64))
            if count == tf.data.INFINITE_CARDINALITY:
                return tf.data.Dataset.from_tensors(tf.constant(0, tf.int64)).repeat()
            return tf.data.Dataset.range(count).skip(skipped)

        return Sharded(
            without(0), self.element, self.adapter, without, self.reading, self.in_blocks,
            self.fingerprint,
        )  # fmt: skip

    num_batches = property(lambda self: self.steps)
    batch_size = property(lambda self: self.adapter.batch_size)
    has_partial_batch = property(lambda self: self.adapter.has_partial_batch)
    partial_batch_size = property(lambda self: self.adapter.partial_batch_size)

    def on_epoch_begin(self) -> None:
        self.adapter.on_epoch_begin()

    def on_epoch_end(self) -> None:
        self.adapter.on_epoch_end()


#: Batches of arrays that are made ahead of the steps.
_AHEAD = 4


def _rows_of_tensors(arrays: Any, blocks: Blocks, chosen: tf.Tensor) -> Any:
    """Some samples of arrays, in a graph."""
    cut, leaves = {block.leaf: block for block in blocks}, keras.tree.flatten(arrays)
    for number, leaf in enumerate(leaves):
        if number in cut:
            leaves[number] = gathered_block(leaf, chosen, cut[number])
        elif leaf is not None:
            leaves[number] = tf.gather(leaf, chosen)
    return keras.tree.pack_sequence_as(arrays, leaves)


def _rows_in_numpy(arrays: Any, dtypes: Sequence[str], blocks: Blocks, chosen: tf.Tensor) -> Any:
    """The same, of arrays of which nothing else is touched."""
    cut, leaves = {block.leaf: block for block in blocks}, keras.tree.flatten(arrays)
    index = [(slice(None), *cut[n].index) if n in cut else () for n in range(len(leaves))]
    there = [number for number, leaf in enumerate(leaves) if leaf is not None]

    def read(numbers: np.ndarray) -> list[np.ndarray]:
        # Slices first, which copy nothing.
        return [
            leaves[n][index[n]][numbers].astype(dtype, copy=False)
            for n, dtype in zip(there, dtypes, strict=True)
        ]

    result: list[Any] = [None] * len(leaves)
    made = tf.numpy_function(read, [chosen], dtypes)
    for number, rows in zip(there, made, strict=True):
        shape = cut[number].size if number in cut else leaves[number].shape[1:]
        result[number] = tf.ensure_shape(rows, [None, *shape])
    return keras.tree.pack_sequence_as(arrays, result)


def _shard_arrays(
    adapter: DataAdapter,
    rows: Callable[[tf.Tensor], Any],
    over: Replica | None,
    skipped: int,
) -> tf.data.Dataset:
    @tf.autograph.experimental.do_not_convert
    def gather(*batch: Any) -> Any:
        chosen = keras.tree.flatten(batch)[0]
        if over is None:
            return rows(chosen)
        total = tf.size(chosen, out_type=tf.int64)
        share = Share.of(total, over, fingerprint_of_indices(chosen))
        own = chosen[share.first : share.first + tf.maximum(share.local, 1)]
        return rows(own), share

    batches = index_batches(adapter)
    batches = batches.skip(skipped) if skipped else batches
    dataset = batches.map(gather, num_parallel_calls=tf.data.AUTOTUNE)
    # The thread that tunes a pipeline may miss that its iterator is deleted, and sleep on: all
    # ranks would wait for as long as the iterator has lived, up to a minute (TensorFlow 2.21).
    options = tf.data.Options()
    options.autotune.enabled = False
    options.experimental_optimization.apply_default_optimizations = False  # as Keras's adapter
    return dataset.prefetch(_AHEAD).with_options(options)


def _kind(adapter: DataAdapter) -> str:
    """Of input of which every rank makes whole batches, what it is."""
    if is_of_arrays(adapter):
        return "arrays that are not dense"
    dataset = py_dataset_of(adapter)
    if dataset is None:
        return "a generator"
    return "rows_of with class_weight" if isinstance(dataset, HasRows) else "PyDataset"


def unpack(batch: Any) -> tuple[Any, Any, Any]:
    """``(x, y, sample_weight)`` of a batch in any form that Keras knows."""
    return keras.utils.unpack_x_y_sample_weight(batch)
