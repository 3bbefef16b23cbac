"""TFRecord files, by an index of where their records begin."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from tnt_notebook.errors import DataError
from tnt_notebook.keras.records import random_reader
from tnt_notebook.parallel.data.readers.crc32c import masked_crcs
from tnt_notebook.parallel.data.readers.damage import Damage, cannot_read, reason, skip
from tnt_notebook.parallel.data.readers.handles import Handles
from tnt_notebook.parallel.data.readers.order import Blocks
from tnt_notebook.parallel.data.readers.paths import Paths, files_of
from tnt_notebook.parallel.data.readers.progress_lines import ProgressLines
from tnt_notebook.parallel.data.readers.rows import at_once
from tnt_notebook.parallel.data.readers.samples import Damaged, Source, dataset_of

_HEADER, _FOOTER = 12, 4  # length and its checksum; that of the data
_BLOCK, _SMALL = 1 << 16, 1 << 13  # bytes that are read at a time where records are small


def tfrecords(
    files: Paths,
    features: Mapping[str, Any] | None = None,
    shuffle: bool = False,
    seed: int | None = None,
    damaged: Damaged = "raise",
    batch: int | None = None,
) -> tf.data.Dataset:
    """Records of TFRecord files, in any number of shards.

    First the lengths of all records are read, 12 bytes each, for an index of where they begin: then
    a rank reads its own records only, also where all are shuffled. No epoch has to be cut by files;
    on storage that is slow with reads here and there, ``batch`` does so.

    Args:
        files: a path, paths, or a pattern such as ``"train/*.tfrecord"``, sorted by name.
        features: as of ``tf.io.parse_example``, of ``tf.io.FixedLenFeature``: each record is a
            ``tf.train.Example`` with these. Default: records as they are; let a ``map`` parse what
            has other features.
        shuffle: whether each epoch has all records of all files in an order of its own.
        seed: of these orders; default: that of ``keras.utils.set_random_seed``.
        damaged: what is done with a record that cannot be read: "raise" ends with a DataError that
            names it; "skip" counts and tells it, and puts the next one that can be read in its
            place. Behind a length that is damaged no record of that file can be found; that is told
            at once.
        batch: the size of the global batches that will be made of them, if each rank is to read
            whole files of its own. That is another order, the same for every number of ranks:
            a batch has samples of 16 places, and shuffled are the files, and the samples
            within each.

    Returns:
        Scalars of strings; with features, dicts of tensors of their shapes and types.

    Raises:
        DataError: a file is missing, compressed or damaged.

    Example::

        features = {"image": tf.io.FixedLenFeature((), tf.string),
                    "label": tf.io.FixedLenFeature((), tf.int64)}
        records = tnt.data.tfrecords("train-*.tfrecord", features, shuffle=True)
        samples = records.map(lambda r: (tf.io.decode_jpeg(r["image"]), r["label"]), -1)
    """
    paths = files_of(files)
    spec = _spec(features)
    index = _index(paths, damaged)
    handles = Handles(random_reader, lambda reader: reader.close())

    def read(numbers: np.ndarray) -> Sequence[np.ndarray]:
        records = np.empty(len(numbers), object)
        for i, number in enumerate(numbers):
            with handles.of(paths[index.file[number]]) as reader:
                records[i], _ = reader.read(int(index.begin[number]))
        if features is None:
            return [records]
        with tf.device("CPU"):
            parsed = tf.io.parse_example(tf.constant(records), dict(features))
        return [leaf.numpy() for leaf in tf.nest.flatten(parsed)]

    def where(number: int) -> str:
        of_file = number - int(np.searchsorted(index.file, index.file[number]))
        return f"record {of_file} of {paths[index.file[number]]}"

    mean = index.bytes // max(1, len(index.begin))
    blocks = None
    if batch is not None:
        blocks = Blocks(np.searchsorted(index.file, np.arange(len(paths)), "right"), batch)
    source = Source(len(index.begin), spec, read, where, at_once(mean), blocks)
    return dataset_of(source, shuffle, seed, damaged)


def _spec(features: Mapping[str, Any] | None) -> Any:
    if features is None:
        return tf.TensorSpec((), tf.string)
    others = [n for n, kind in features.items() if not isinstance(kind, tf.io.FixedLenFeature)]
    if others:
        raise DataError(
            f"features: of {others[0]} a sample has any number of values. Read records as they are "
            "(features=None), and parse them by .map(lambda r: tf.io.parse_single_example(r, "
            "features), num_parallel_calls=tf.data.AUTOTUNE)."
        )
    return {name: tf.TensorSpec(kind.shape, kind.dtype) for name, kind in features.items()}


class Index(NamedTuple):
    """Of all records: the number of the file, and where each begins in it; and bytes in all."""

    file: np.ndarray
    begin: np.ndarray
    bytes: int


def _index(paths: Sequence[str], damaged: Damaged) -> Index:
    """Reads the lengths of all records, of several files at a time."""
    begins: list[np.ndarray] = []
    total = 0
    with (
        ThreadPoolExecutor(8) as pool,
        ProgressLines("index of TFRecord files", len(paths)) as told,
    ):
        for path, found in zip(paths, pool.map(_try_scan, paths), strict=True):
            offsets, size, wrong = found
            if wrong:
                damage = Damage(path, wrong)
                if damaged == "raise":
                    raise cannot_read(damage)
                skip(damage)
            begins.append(offsets)
            total += size
            told.done(1)
    files = np.repeat(np.arange(len(paths)), [len(each) for each in begins])
    return Index(files, np.concatenate(begins), total)


def _try_scan(path: str) -> tuple[np.ndarray, int, str]:
    """Where records of a file begin, the bytes of the file, and what is wrong with it."""
    try:
        with open(path, "rb") as opened:
            return _scan(opened.fileno())
    except OSError as error:
        return np.zeros(0, np.int64), 0, reason(error)


def _scan(file: int) -> tuple[np.ndarray, int, str]:
    size = os.fstat(file).st_size
    begins, headers = [], []
    block, at, offset, length = b"", 0, 0, 0
    while offset + _HEADER <= size:
        if not at <= offset <= at + len(block) - _HEADER:
            block = os.pread(file, _BLOCK if length < _SMALL else _HEADER, offset)
            at = offset
            if len(block) < _HEADER:
                break
        header = block[offset - at : offset - at + _HEADER]
        length = int.from_bytes(header[:8], "little")
        begins.append(offset)
        headers.append(header)
        offset += _HEADER + length + _FOOTER
    if headers and headers[0][:3] == b"\x1f\x8b\x08":
        wrong = "it is compressed, so records cannot be read alone: use tf.data.TFRecordDataset"
        return np.zeros(0, np.int64), size, wrong
    table = np.frombuffer(b"".join(headers), np.uint8).reshape(-1, _HEADER)
    whole = masked_crcs(table[:, :8]) == np.ascontiguousarray(table[:, 8:]).view("<u4").ravel()
    if not whole.all():
        good = int(np.argmin(whole))
        wrong = (
            f"the length of record {good} is damaged, so that {size - begins[good]} bytes, from it "
            "on, cannot be read"
        )
        return np.array(begins[:good], np.int64), size, wrong
    if offset != size:
        count = len(begins) - (offset > size)
        return np.array(begins[:count], np.int64), size, f"it ends within record {count}"
    return np.array(begins, np.int64), size, ""
