"""NumPy files, of which only the rows that are wanted are read."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

import numpy as np
import tensorflow as tf

from tnt_notebook.errors import DataError
from tnt_notebook.parallel.data.blocks import Block, lines_of
from tnt_notebook.parallel.data.readers.handles import Handles
from tnt_notebook.parallel.data.readers.paths import existing
from tnt_notebook.parallel.data.readers.rows import Table, runs_of, table
from tnt_notebook.parallel.data.readers.samples import Damaged


def arrays(
    *files: str | os.PathLike[str] | np.ndarray,
    shuffle: bool = False,
    seed: int | None = None,
    damaged: Damaged = "raise",
) -> tf.data.Dataset:
    """Samples of NumPy files (``.npy``), which may be larger than memory.

    Rows are read when they are needed, as from a memory map, and stay in the page cache, which the
    ranks of a node share. But a file that is cut short, or a disk that fails, is an error here,
    where a memory map ends the process.

    Args:
        files: each with one sample a row, shape (samples, ...); all have as many rows. An array in
            memory, such as labels, or a ``np.memmap`` may stand for any of them.
        shuffle: whether each epoch has all samples in an order of its own.
        seed: of these orders; default: that of ``keras.utils.set_random_seed``.
        damaged: what is done with a sample that cannot be read: "raise" ends with a DataError that
            names it; "skip" counts and tells it, and puts the next one that can be read in its
            place.

    Returns:
        Of one file its rows, of several tuples of rows.

    Raises:
        DataError: a file is missing, is not a ``.npy`` file of numbers, or they have different
            numbers of rows.

    Example::

        samples = tnt.data.arrays("x.npy", "y.npy", shuffle=True, seed=1)
        model.fit(samples.batch(256), epochs=3)
    """
    return table([_table(file) for file in files], shuffle, seed, damaged)


def _table(file: Any) -> Table:
    if isinstance(file, np.ndarray):
        return Table(
            "an array in memory", file.shape, file.dtype, lambda rows: file[rows],
            # Slices first: they copy nothing, and of a memory map they read nothing.
            lambda rows, block: file[(slice(None), *block.index)][rows],
        )  # fmt: skip
    path = existing(os.fspath(file))
    try:
        with open(path, "rb") as opened:
            shape, fortran, dtype = _header(opened)
            begin = opened.tell()
    except (ValueError, OSError) as error:
        raise DataError(f"{path} {_what_else(path)}: {error}") from error
    if fortran:
        raise DataError(
            f"{path} is in Fortran's order, so that no row lies together: save it again, by "
            "np.save(path, np.ascontiguousarray(x))."
        )
    reads = _Rows(path, begin, shape, dtype)
    return Table(path, shape, dtype, reads.rows, reads.blocks)


def _header(opened: Any) -> Any:
    version = np.lib.format.read_magic(opened)
    if version == (1, 0):
        return np.lib.format.read_array_header_1_0(opened)
    return np.lib.format.read_array_header_2_0(opened)


def _what_else(path: str) -> str:
    with open(path, "rb") as opened:
        if opened.read(2) != b"PK":
            return "is not a .npy file; write it with np.save"
    return (
        "is an .npz file, a zip of arrays, whose rows cannot be read alone. Save each array with "
        'np.save("x.npy", x), or give what fits into memory as it is, np.load(...)["x"]'
    )


class _Rows:
    """Of a ``.npy`` file of this shape, whose numbers begin at a byte, what is asked for."""

    def __init__(self, path: str, begin: int, shape: tuple[int, ...], dtype: np.dtype) -> None:
        self._path, self._begin, self._shape, self._dtype = path, begin, shape, dtype
        self._handles = Handles(lambda path: os.open(path, os.O_RDONLY), os.close)
        self._row = int(np.prod(shape[1:], dtype=np.int64)) * dtype.itemsize

    def rows(self, numbers: np.ndarray) -> np.ndarray:
        row = self._row
        lines = ((row * first, row * (last + 1 - first)) for first, last in runs_of(numbers))
        return self._read((len(numbers), *self._shape[1:]), lines)

    def blocks(self, numbers: np.ndarray, block: Block) -> np.ndarray:
        size = self._dtype.itemsize
        lines = (
            (self._row * int(number) + size * first, size * count)
            for number in numbers
            for first, count in lines_of(block)
        )
        return self._read((len(numbers), *block.size), lines)

    def _read(self, shape: tuple[int, ...], lines: Iterable[tuple[int, int]]) -> np.ndarray:
        """An array of pieces of the file: from which byte of its numbers on, and how many."""
        found = np.empty(shape, self._dtype)
        into = found.reshape(-1).view(np.uint8).data
        at = 0
        with self._handles.of(self._path) as opened:
            for first, wanted in lines:
                offset = self._begin + first
                while wanted:
                    got = os.preadv(opened, [into[at : at + wanted]], offset)
                    if not got:
                        raise DataError("the file ends before it")
                    at, wanted, offset = at + got, wanted - got, offset + got
        return found
