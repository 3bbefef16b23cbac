"""HDF5 files, by h5py."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from tnt_notebook.errors import DataError
from tnt_notebook.parallel.data.readers.handles import Handles
from tnt_notebook.parallel.data.readers.optional import library
from tnt_notebook.parallel.data.readers.paths import existing
from tnt_notebook.parallel.data.readers.rows import TEXT, Table, runs_of, table
from tnt_notebook.parallel.data.readers.samples import Damaged

#: Of compressed chunks, so much stays in memory for each file: h5py's own 1 MB holds few.
_CHUNKS_BYTES = 32 << 20


def hdf5(
    file: str | os.PathLike[str],
    *datasets: str,
    shuffle: bool = False,
    seed: int | None = None,
    damaged: Damaged = "raise",
) -> tf.data.Dataset:
    """Samples of datasets in an HDF5 file, read by slices.

    Args:
        file: its path.
        datasets: their names in it, such as "images" or "scans/7/labels": each with one sample a
            row, shape (samples, ...); all have as many rows. Of numbers, or of strings.
        shuffle: whether each epoch has all samples in an order of its own. In a file that was
            written in chunks of many rows each of them is then read, and decompressed, many times:
            write chunks of one row, or a few.
        seed: of these orders; default: that of ``keras.utils.set_random_seed``.
        damaged: "raise", or "skip", see :func:`dataset_of`.

    Returns:
        Of one dataset its rows, of several tuples of rows.

    Raises:
        DataError: h5py is not installed, or the file is missing, not HDF5, or has no such dataset.

    Example::

        samples = tnt.data.hdf5("scan.h5", "images", "labels", shuffle=True)
    """
    h5py = library("h5py", "HDF5 files")
    path = existing(os.fspath(file))

    def opened(path: str) -> Any:
        return h5py.File(path, "r", rdcc_nbytes=_CHUNKS_BYTES, locking="best-effort")

    handles = Handles(opened, lambda open_file: open_file.close())
    try:
        with opened(path) as open_file:
            tables = [_table(handles, open_file, path, name, h5py) for name in datasets]
            names = sorted(open_file)
    except OSError as error:
        raise DataError(f"{path} cannot be read as HDF5: {error}.") from error
    if not tables:
        raise DataError(f"Name the datasets of {path} to read; it has {', '.join(names)}.")
    return table(tables, shuffle, seed, damaged)


def _table(handles: Handles, open_file: Any, path: str, name: str, h5py: Any) -> Table:
    found = open_file.get(name)
    if not isinstance(found, h5py.Dataset):
        raise DataError(f"{path} has no dataset {name}; it has {', '.join(sorted(open_file))}.")
    rows = _reader(handles, path, name)
    dtype = found.dtype if h5py.check_string_dtype(found.dtype) is None else TEXT
    return Table(
        f"{name} in {path}", found.shape, dtype, rows,
        lambda numbers, block: rows(numbers, block.index),
    )  # fmt: skip


def _reader(handles: Handles, path: str, name: str) -> Callable[..., np.ndarray]:
    def rows(numbers: np.ndarray, index: tuple[slice, ...] = ()) -> np.ndarray:
        with handles.of(path) as open_file:
            found = open_file[name]
            # A list of numbers costs HDF5 more than a slice each.
            return np.concatenate(
                [found[(slice(first, last + 1), *index)] for first, last in runs_of(numbers)]
            )

    return rows
