"""Arrays in files with one sample a row, beside each other: a sample is a row of each."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from tnt_notebook.errors import DataError
from tnt_notebook.parallel.data.blocks import Block, Blocks
from tnt_notebook.parallel.data.fingerprints import fingerprint_of
from tnt_notebook.parallel.data.readers.samples import (
    Damaged,
    Source,
    dataset_of,
    in_order,
    spec_of,
)

#: Bytes that are read by one call, about, and samples at most.
_AT_ONCE_BYTES, _AT_ONCE = 1 << 20, 128


#: Strings of any length: arrays of such are of objects, or of NumPy's own kind of them.
TEXT = np.dtype("S")


class Table(NamedTuple):
    """An array that lies in a file.

    Attributes:
        name: of it, for errors.
        shape: (samples, ...).
        dtype: of NumPy; :data:`TEXT` of strings of any length.
        rows: those of these numbers (int64, ascending, each once).
        blocks: the same, of each row a block.
    """

    name: str
    shape: tuple[int, ...]
    dtype: np.dtype
    rows: Callable[[np.ndarray], np.ndarray]
    blocks: Callable[[np.ndarray, Block], np.ndarray]


def table(
    tables: Sequence[Table], shuffle: bool, seed: int | None, damaged: Damaged
) -> tf.data.Dataset:
    """Samples, each a row of all of them.

    Raises:
        DataError: they have no rows, different numbers of them, or no numbers in them.
    """
    if not tables:
        raise DataError("No arrays are given to read.")
    for each in tables:
        if not each.shape:
            raise DataError(f"{each.name} is a single number: samples are the rows of an array.")
        if 0 in each.shape[1:]:  # TensorFlow 2.21 crashes where it takes them apart
            raise DataError(f"{each.name} has rows without values, of shape {each.shape[1:]}.")
        if each.dtype.kind not in "biufcSU" and "bfloat16" not in each.dtype.name:
            raise DataError(f"{each.name} holds {each.dtype}, of which no tensor can be made.")
    if len({each.shape[0] for each in tables}) > 1:
        found = ", ".join(f"{each.name} has {each.shape[0]}" for each in tables)
        raise DataError(f"All arrays must have as many rows, one for each sample: {found}.")
    specs = tuple(
        spec_of(each.shape, tf.string if each.dtype.kind in "SU" else each.dtype) for each in tables
    )
    names = ", ".join(dict.fromkeys(each.name for each in tables))

    def read(numbers: np.ndarray) -> Sequence[np.ndarray]:
        return in_order(numbers, lambda ascending: [_for_tensor(t.rows(ascending)) for t in tables])

    def read_blocks(numbers: np.ndarray, blocks: Blocks) -> Sequence[np.ndarray]:
        cut = {block.leaf: block for block in blocks}

        def rows(ascending: np.ndarray) -> list[np.ndarray]:
            return [
                _for_tensor(t.blocks(ascending, cut[i]) if i in cut else t.rows(ascending))
                for i, t in enumerate(tables)
            ]

        return in_order(numbers, rows)

    source = Source(
        tables[0].shape[0],
        specs if len(specs) > 1 else specs[0],
        read,
        lambda number: f"sample {number} of {names}",
        at_once(sum(bytes_of(each) for each in tables)),
        read_blocks=read_blocks,
        fingerprint=functools.partial(_fingerprint, tables),
    )
    return dataset_of(source, shuffle, seed, damaged)


#: Of so many samples something is looked at, to tell arrays from each other.
_LOOKED_AT = 4


def _fingerprint(tables: Sequence[Table]) -> str:
    """A hash of some numbers of each array, whatever its size. What cannot be read tells of itself
    when it is needed."""
    parts = []
    for each in tables:
        chosen = np.unique(np.linspace(0, each.shape[0] - 1, _LOOKED_AT).astype(np.int64))
        try:
            if len(each.shape) > 1:
                middle = each.shape[1] // 2
                block = Block(0, each.shape[1:], ((1, (middle, middle + 1)),))
                parts.append(fingerprint_of(each.blocks(chosen, block)))
            else:
                parts.append(fingerprint_of(each.rows(chosen)))
        except (OSError, ValueError, RuntimeError, DataError):
            parts.append("not readable")
        parts.append(f"{each.shape} {each.dtype}")
    return ", ".join(parts)


def _for_tensor(rows: np.ndarray) -> np.ndarray:
    """In this machine's order of bytes, and text in UTF-8."""
    if rows.dtype.kind == "U":
        return np.char.encode(rows, "utf-8")
    if rows.dtype.kind in "OT":
        return rows.astype(object)
    return rows.astype(rows.dtype.newbyteorder("="), copy=False)


def bytes_of(each: Table) -> int:
    """Bytes of a row; of a string of any length those that it is found by."""
    return int(np.prod(each.shape[1:], dtype=np.int64)) * (each.dtype.itemsize or 8)


def at_once(bytes_of_sample: int) -> int:
    """How many samples of this size are read by one call."""
    return max(1, min(_AT_ONCE, _AT_ONCE_BYTES // max(1, bytes_of_sample)))


def runs_of(numbers: np.ndarray) -> Iterator[tuple[int, int]]:
    """The first and the last of each run of numbers that follow each other, of ascending ones."""
    for run in np.split(numbers, np.flatnonzero(np.diff(numbers) > 1) + 1):
        yield int(run[0]), int(run[-1])
