"""Samples of files as a ``tf.data.Dataset``: their numbers first, in order or shuffled, and only
then what they are::

    0 1 2 3 4 5 6 7 8 9        numbers of all samples
    7 2 9 0 5 4 8 1 6 3        shuffled, anew in each epoch
    [7 2 9 0][5 4 8 1][6 3]    some are read at a time, which is faster
    sample 7, sample 2, ...    one after the other again

A rank needs all numbers, and reads the samples of its own: see ``shard_point``, which knows what is
read in chunks like this.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import tensorflow as tf

from tnt_notebook.errors import DataError
from tnt_notebook.parallel.data.blocks import AboutReader, note_about
from tnt_notebook.parallel.data.blocks import Blocks as Cut
from tnt_notebook.parallel.data.readers.damage import Reader, complete
from tnt_notebook.parallel.data.readers.order import Blocks, numbers_of
from tnt_notebook.parallel.data.row_wise import row_wise

Damaged = Literal["raise", "skip"]


@dataclass(frozen=True)
class Source:
    """Samples that lie in files, by their numbers.

    Attributes:
        count: how many there are.
        spec: of a sample: a structure of ``tf.TensorSpec``.
        read: the samples of these numbers (int64), the leaves of ``spec``: arrays of shape
            (samples, ...). It raises, whatever it is, where one of them cannot be read.
        where: names a sample: its file, and its place there.
        at_once: how many are to be read by one call.
        blocks: what can only be read whole, if ranks are to read theirs only.
        read_blocks: the same as ``read``, of some leaves a block of each sample only; None: samples
            are read whole.
        fingerprint: a hash of some of them; None: what lies in them is not looked at.
    """

    count: int
    spec: Any
    read: Reader
    where: Callable[[int], str]
    at_once: int
    blocks: Blocks | None = None
    read_blocks: Callable[[np.ndarray, Cut], Sequence[np.ndarray]] | None = None
    fingerprint: Callable[[], str] | None = None


def dataset_of(
    source: Source, shuffle: bool = False, seed: int | None = None, damaged: Damaged = "raise"
) -> tf.data.Dataset:
    """The samples of a source.

    Args:
        shuffle: whether each epoch has all samples in an order of its own.
        seed: of these orders; default: that of ``keras.utils.set_random_seed``.
        damaged: what is done with a sample that cannot be read: "raise" ends with a
            :class:`~tnt_notebook.errors.DataError` that names it; "skip" counts and tells it, and
            puts the next sample that can be read in its place.
    """
    if damaged not in ("raise", "skip"):
        raise ValueError(f'damaged={damaged!r}: write "raise" or "skip".')
    if source.blocks is not None and source.blocks.batch < 1:
        raise ValueError(f"batch={source.blocks.batch}: give the size of the global batches.")
    if source.count < 1:
        raise DataError("There are no samples to read.")

    def reading(read: Reader, shapes: Sequence[Sequence[int | None]]) -> Callable[..., Any]:
        complete_read = complete(read, source.where, source.count, skips=damaged == "skip")

        @row_wise
        @tf.autograph.experimental.do_not_convert
        def samples_of(numbers: tf.Tensor) -> Any:
            values = tf.numpy_function(complete_read, [numbers], [leaf.dtype for leaf in leaves])
            for value, shape in zip(values, shapes, strict=True):
                value.set_shape([None, *shape])
            return tf.nest.pack_sequence_as(source.spec, values)

        return samples_of

    def reading_blocks(cut: Cut) -> Callable[..., Any]:
        sizes = {block.leaf: block.size for block in cut}
        shapes = [sizes.get(i, leaf.shape) for i, leaf in enumerate(leaves)]
        read_blocks = source.read_blocks
        assert read_blocks is not None
        return reading(lambda numbers: read_blocks(numbers, cut), shapes)

    leaves: Sequence[tf.TensorSpec] = tf.nest.flatten(source.spec)
    samples_of = reading(source.read, [leaf.shape for leaf in leaves])
    if source.fingerprint is not None:
        # What is damaged in one block is whole in another: ranks would skip different samples.
        blocks_too = source.read_blocks is not None and damaged == "raise"
        told = AboutReader(reading_blocks if blocks_too else None, source.fingerprint)
        samples_of = note_about(samples_of, told)
    chunks = numbers_of(source.count, shuffle, seed, source.blocks).batch(source.at_once)
    read_chunks = chunks.map(samples_of, num_parallel_calls=tf.data.AUTOTUNE, deterministic=True)
    return read_chunks.unbatch().apply(tf.data.experimental.assert_cardinality(source.count))


def spec_of(shape: Sequence[int], dtype: Any) -> tf.TensorSpec:
    """Of arrays with a sample in each row, a sample."""
    return tf.TensorSpec(tuple(shape)[1:], tf.as_dtype(dtype))


def in_order(
    numbers: np.ndarray, read: Callable[[np.ndarray], Sequence[np.ndarray]]
) -> list[np.ndarray]:
    """Reads rows by their numbers, ascending and each once, as files like it; gives them as asked
    for."""
    ascending, places = np.unique(numbers, return_inverse=True)
    return [rows[places] for rows in read(ascending)]
