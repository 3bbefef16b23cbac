"""Cuts every global batch of a dataset into one slice a rank.

    global batch of 10 on 4 ranks:   0 1 | 2 3 4 | 5 6 | 7 8 9
    last batch of 3:                     |   0   |  1  |   2       rank 0 has no data

A rank without data still takes part in every exchange, so it gets one sample of the batch to
compute on, with weight 0.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

import keras
import tensorflow as tf

from tnt_notebook.errors import DataError

#: Fingerprints are below this, so that sums over ranks are exact in float64.
MODULUS = 65521


class Replica(NamedTuple):
    """Which of how many cuts of the data: of each rank, or of each pipeline of ranks.

    Attributes:
        shares: how large the cuts are, one beside the other, in whole numbers; empty: alike.
    """

    rank: int
    size: int
    shares: tuple[int, ...] = ()


class Share(NamedTuple):
    """What a rank has of a global batch. Scalars, int64.

    Attributes:
        first: of this rank's samples, in the global batch.
        local: samples of this rank; 0 if it has none.
        total: samples of the global batch.
        fingerprint: a hash of the global batch; the same on all ranks, or they read different data.
    """

    first: Any
    local: Any
    total: Any
    fingerprint: Any

    @classmethod
    def of(cls, total: Any, over: Replica, fingerprint: Any) -> Share:
        """That of a rank, of a batch of so many samples."""
        begin, end = share_of(total, over)
        return cls(begin, end - begin, total, fingerprint)


class Zipped(NamedTuple):
    """A batch made of several: for each row of the shortest tensor, another may have more."""

    batch: Any


def unzipped(data: Any) -> Any:
    """A batch as it is, or its spec."""
    return data.batch if isinstance(data, Zipped) else data


def share_of(total: Any, over: Replica) -> tuple[Any, Any]:
    """The samples [begin, end) of a global batch that are this rank's (int or tensor)."""
    begin, own, whole = over.rank, 1, over.size
    if over.shares:
        begin, own, whole = sum(over.shares[: over.rank]), over.shares[over.rank], sum(over.shares)
    return total * begin // whole, total * (begin + own) // whole


def shard(batches: tf.data.Dataset, over: Replica, is_zipped: bool = False) -> tf.data.Dataset:
    """A dataset of ``(slice of this rank, Share)`` from a dataset of global batches.

    Args:
        is_zipped: whether parts of a batch are batches of their own, of other sizes perhaps.
    """

    is_tuple = type(batches.element_spec) is tuple  # which tf.data hands over as arguments

    @tf.autograph.experimental.do_not_convert
    def cut_batch(*batch: Any) -> tuple[Any, Share]:
        part, share = cut(batch if is_tuple else batch[0], over, is_zipped)
        return (Zipped(part) if is_zipped else part), share

    return batches.map(cut_batch, num_parallel_calls=tf.data.AUTOTUNE).prefetch(tf.data.AUTOTUNE)


def cut(batch: Any, over: Replica, is_zipped: bool = False) -> tuple[Any, Share]:
    """This rank's slice of one global batch, any structure of tensors with a batch axis. Where one
    has several rows for each row of another, so have the slices; numbers are the same for all.

    Args:
        is_zipped: as of :func:`shard`.
    """
    tensors = [tensor for tensor in _tensors_of(batch) if has_rows(tensor)]
    if not tensors:
        length_of(_tensors_of(batch)[0])  # says what is missing
    total = length_of(tensors[0])
    least, times = _times(tensors, is_zipped)
    begin, end = share_of(least, over)
    stop = tf.maximum(end, begin + 1)  # a rank without data borrows a sample

    def slice_leaf(leaf: Any) -> Any:
        if leaf is None or not has_rows(leaf):
            return leaf
        n = times.get(id(leaf), 1)
        return rows(leaf, begin * n, stop * n)

    dense = [tensor for tensor in tensors if isinstance(tensor, tf.Tensor)]
    ends = [tensor[at] for tensor in dense for at in (0, -1)]
    each = times.get(id(tensors[0]), 1)
    share = Share(begin * each, (end - begin) * each, total, fingerprint_of(total, ends))
    return keras.tree.map_structure(slice_leaf, batch), share


_WHAT_A_BATCH_IS = (
    "What the dataset yields has tensors of different lengths, {lengths}. Ranks take the same part "
    "of each, so each has to have one row a sample: zip datasets that were batched each, of which "
    "one may have several rows for every row of the shortest, or let what is not of samples be a "
    "number."
)


def has_rows(leaf: Any) -> bool:
    return not isinstance(leaf, tf.Tensor) or leaf.shape.rank != 0


def _times(tensors: Sequence[Any], is_zipped: bool) -> tuple[tf.Tensor, dict[int, tf.Tensor]]:
    """How many rows the shortest tensor has; and, where they differ, how many rows others have for
    each of them, by id.

    Raises:
        DataError: some lengths are of no samples.
    """
    known = [tensor.shape[0] if tensor.shape.rank else None for tensor in tensors]
    if len(tensors) == 1 or (None not in known and len(set(known)) == 1):
        return length_of(tensors[0]), {}
    fixed = {n for n in known if n is not None}
    if len(fixed) > 1 and not is_zipped:
        shown = ", ".join("that of the batch" if n is None else str(n) for n in known)
        raise DataError(_WHAT_A_BATCH_IS.format(lengths=shown))
    lengths = [length_of(tensor) for tensor in tensors]
    least = functools.reduce(tf.minimum, lengths)
    if is_zipped:
        fits = tf.reduce_all([length % tf.maximum(least, 1) == 0 for length in lengths])
    else:
        fits = tf.reduce_all([length == least for length in lengths])
    with tf.control_dependencies(
        [tf.debugging.Assert(fits, [_WHAT_A_BATCH_IS.format(lengths="see below"), *lengths])]
    ):
        least = tf.identity(least)
    if not is_zipped:
        return least, {}
    every = zip(tensors, lengths, strict=True)
    return least, {id(t): length // tf.maximum(least, 1) for t, length in every}


def samples_of(batch: Any) -> tf.Tensor:
    """How many samples a batch has, int64."""
    return length_of(_tensors_of(batch)[0])


def fingerprint_of(total: tf.Tensor, samples: Any) -> tf.Tensor:
    """A hash of how many samples a global batch has, and of some of them."""
    fingerprint = total
    for tensor in keras.tree.flatten(samples):
        if isinstance(tensor, tf.Tensor):
            fingerprint = (fingerprint * 31 + _hash(tensor)) % MODULUS
    return fingerprint


def fingerprint_of_indices(indices: tf.Tensor) -> tf.Tensor:
    """A hash of which samples a global batch has, and in which order."""
    places = tf.range(1, tf.size(indices, out_type=tf.int64) + 1, dtype=tf.int64)
    return tf.reduce_sum(tf.cast(indices, tf.int64) * places % MODULUS) % MODULUS


def _tensors_of(batch: Any) -> list[Any]:
    tensors = [leaf for leaf in keras.tree.flatten(batch) if leaf is not None]
    if not tensors:
        raise DataError("The input yields batches without any tensor.")
    return tensors


def length_of(tensor: Any) -> tf.Tensor:
    if isinstance(tensor, tf.SparseTensor):
        return tensor.dense_shape[0]
    if isinstance(tensor, tf.RaggedTensor):
        return tf.cast(tensor.nrows(), tf.int64)
    if tensor.shape.rank == 0:
        raise DataError(
            "The dataset yields single numbers, not batches: call .batch(n) on it before training."
        )
    return tf.shape(tensor, out_type=tf.int64)[0]


def rows(tensor: Any, begin: tf.Tensor, stop: tf.Tensor) -> Any:
    """Of a tensor, dense, sparse or ragged, the rows [begin, stop)."""
    if isinstance(tensor, tf.SparseTensor):
        rest = tensor.dense_shape[1:]
        start = tf.concat([[begin], tf.zeros_like(rest)], 0)
        return tf.sparse.slice(tensor, start, tf.concat([[stop - begin], rest], 0))
    return tensor[begin:stop]


#: Of a larger sample some numbers are looked at, so that no copy of it is made.
_LOOKED_AT = 1 << 16


def _hash(row: tf.Tensor) -> tf.Tensor:
    flat = tf.reshape(row, [-1])
    some = flat[:: 1 + tf.size(flat) // _LOOKED_AT]
    return tf.strings.to_hash_bucket_fast(tf.io.serialize_tensor(some), MODULUS)
