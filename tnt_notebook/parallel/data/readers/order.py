"""The order in which samples are read, as their numbers.

Where files, or parts of them, can only be read whole, an order in which each rank needs its own
only: the samples lie one after the other, block by block, and are divided into streams; a batch
takes as many of each, the first ones of the first, so that a rank's slice of all batches is of
streams that lie together::

    blocks     [0 1 2 3 4] [5 6 7 8] [9 10 11 12 13] [14 15]
    streams    0 1 2 3 | 4 5 6 7 | 8 9 10 11 | 12 13 14 15
    batches    0 4 8 12 | 1 5 9 13 | 2 6 10 14 | 3 7 11 15
               ---- rank 0 of 2: samples 0 to 7, blocks 0 and 1
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import tensorflow as tf

#: Streams, if batches are not smaller: as many ranks read apart, and a process alone has as many
#: blocks open.
STREAMS = 16


@dataclass(frozen=True)
class Blocks:
    """What can only be read whole.

    Attributes:
        ends: the number of samples up to the end of each, int64.
        batch: samples of the global batches that will be made.
    """

    ends: np.ndarray
    batch: int


def numbers_of(
    count: int, shuffle: bool, seed: int | None, blocks: Blocks | None = None
) -> tf.data.Dataset:
    """0 to ``count`` - 1 (int64): in order, or all of them in a new order for each iterator; of
    blocks these in a new order, and the samples within each. That takes 8 bytes each, and 40 while
    they are shuffled, where ``Dataset.shuffle`` takes 130."""
    if not shuffle and blocks is None:
        return tf.data.Dataset.range(count)

    @tf.autograph.experimental.do_not_convert
    def in_order(seeds: tf.Tensor) -> tf.data.Dataset:
        numbers = tf.range(count, dtype=tf.int64)
        if shuffle:
            numbers = tf.random.experimental.stateless_shuffle(numbers, seeds)
        if shuffle and blocks is not None:
            numbers = _by_blocks(numbers, blocks.ends, seeds)
        if blocks is not None:
            numbers = _in_streams(numbers, count, blocks.batch)
        return tf.data.Dataset.from_tensor_slices(numbers)

    if shuffle:
        random = tf.data.Dataset.random(seed, rerandomize_each_iteration=True)
        seeds = random.batch(2, drop_remainder=True).take(1)
    else:
        seeds = tf.data.Dataset.from_tensors(tf.zeros(2, tf.int64))
    numbers = seeds.flat_map(in_order)
    return numbers.apply(tf.data.experimental.assert_cardinality(count))


def _by_blocks(numbers: tf.Tensor, ends: np.ndarray, seeds: tf.Tensor) -> tf.Tensor:
    """Shuffled numbers, sorted by block, of which the order is shuffled too."""
    block = tf.searchsorted(ends, numbers, "right", tf.int64)
    order = tf.random.experimental.stateless_shuffle(tf.range(len(ends), dtype=tf.int64), seeds + 1)
    count = tf.size(numbers, tf.int64)
    return tf.gather(numbers, tf.argsort(tf.gather(order, block) * count + tf.range(count)))


def _in_streams(numbers: tf.Tensor, count: int, batch: int) -> tf.Tensor:
    """Numbers for full batches, each with its part of every stream; and the rest."""
    full = count // batch
    stream = np.arange(batch) * min(STREAMS, batch) // batch  # of each place in a batch
    first, width = np.searchsorted(stream, stream), np.bincount(stream)[stream]
    begin = full * first + np.arange(batch) - first  # in the first batch
    places = begin + tf.range(full, dtype=tf.int64)[:, None] * width
    return tf.concat([tf.gather(numbers, tf.reshape(places, [-1])), numbers[full * batch :]], 0)
