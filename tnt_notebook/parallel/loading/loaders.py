"""Loaders of the generated files, as one writes them in ``tf.data``::

    files, again and again -> read, decode (parallel calls) -> batch -> prefetch

Without a file it is synthetic: one image in memory, which is copied into batches.
"""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import tensorflow as tf

from tnt_notebook.parallel.loading.samples import ROWS, SHARDS, Files
from tnt_notebook.parallel.loading.storage import REQUEST_BYTES, Throttle


def synthetic(side: int, batch: int, prefetch: int) -> tf.data.Dataset:
    """Batches of an image in memory."""
    image = tf.data.Dataset.from_tensors(tf.zeros((side, side, 3), tf.uint8))
    return _batches(image.repeat(), batch, prefetch, 1)


def loader(
    name: str, files: Files, throttle: Throttle | None, calls: int, batch: int, prefetch: int
) -> tf.data.Dataset:
    """Batches of images without end, uint8 of shape (batch, side, side, 3).

    Args:
        name: of the format.
        throttle: of the storage; None: as it is.
        calls: parallel ones, and shards that are read together.
        prefetch: batches; 0: none.
    """
    if name == "tfrecord":
        encoded = _of_records(files, throttle, calls)
    elif name == "parquet":
        encoded = _of_table(files, throttle, calls)
    else:
        encoded = tf.data.Dataset.from_tensor_slices(list(files.paths)).repeat()
    shape = (files.side, files.side, 3)

    def image(element: tf.Tensor) -> tf.Tensor:
        if name == "tfrecord":
            feature = {"image": tf.io.FixedLenFeature([], tf.string)}
            content = tf.io.parse_single_example(element, feature)["image"]
        elif name == "parquet":
            content = element
        else:
            content = tf.io.read_file(element)
            content = content if throttle is None else throttle.file(content)
        if name == "raw":
            return tf.reshape(tf.io.decode_raw(content, tf.uint8), shape)
        decode = tf.io.decode_png if name == "png" else tf.io.decode_jpeg
        return tf.ensure_shape(decode(content, channels=3), shape)

    samples = encoded.map(image, num_parallel_calls=calls, deterministic=True)
    return _batches(samples, batch, prefetch, calls)


def readers(name: str, calls: int) -> int:
    """How many files, or parts of a file, are read at the same time."""
    if name == "tfrecord":
        return min(calls, SHARDS)
    # A row group has the samples of several calls.
    return max(1, calls // ROWS) if name == "parquet" else calls


def _batches(samples: tf.data.Dataset, size: int, prefetch: int, calls: int) -> tf.data.Dataset:
    batches = samples.batch(size, drop_remainder=True)
    batches = batches.prefetch(prefetch) if prefetch else batches
    options = tf.data.Options()
    options.autotune.enabled = False
    # A call that waits for storage holds a thread: without these, a rank on one core has one.
    options.threading.private_threadpool_size = 2 * calls + 2
    return batches.with_options(options)


def _of_records(files: Files, throttle: Throttle | None, calls: int) -> tf.data.Dataset:
    """Shards, each read again and again as if it were long, so many together."""

    def records(path: tf.Tensor) -> tf.data.Dataset:
        stream = tf.data.TFRecordDataset(path, buffer_size=REQUEST_BYTES).repeat()
        return stream if throttle is None else throttle.stream(stream)

    shards = tf.data.Dataset.from_tensor_slices(list(files.paths))
    together = readers("tfrecord", calls)
    return shards.interleave(records, cycle_length=together, num_parallel_calls=together)


def _of_table(files: Files, throttle: Throttle | None, calls: int) -> tf.data.Dataset:
    """Row groups, read in Python."""
    import pyarrow.parquet

    (path,) = files.paths
    groups = pyarrow.parquet.read_metadata(path).num_row_groups
    opened = threading.local()  # such a file is not for several threads

    def read(group: np.ndarray) -> Any:
        if not hasattr(opened, "file"):
            opened.file = pyarrow.parquet.ParquetFile(path)
        column = opened.file.read_row_group(int(group), use_threads=False).column(0)
        if throttle is not None:
            throttle.hold(-(-column.nbytes // REQUEST_BYTES), column.nbytes)
        return np.array(column.to_pylist(), dtype=object)

    def rows(group: tf.Tensor) -> tf.Tensor:
        return tf.ensure_shape(tf.numpy_function(read, [group], tf.string), (None,))

    together = readers("parquet", calls)
    numbers = tf.data.Dataset.range(groups).repeat()
    return numbers.map(rows, num_parallel_calls=together, deterministic=True).unbatch()
