"""Zarr stores, by zarr."""

from __future__ import annotations

import os
from typing import Any

import tensorflow as tf

from tnt_notebook.errors import DataError
from tnt_notebook.parallel.data.readers.optional import library
from tnt_notebook.parallel.data.readers.paths import existing
from tnt_notebook.parallel.data.readers.rows import TEXT, Table, table
from tnt_notebook.parallel.data.readers.samples import Damaged


def zarr(
    store: str | os.PathLike[str],
    *arrays: str,
    shuffle: bool = False,
    seed: int | None = None,
    damaged: Damaged = "raise",
) -> tf.data.Dataset:
    """Samples of arrays in a Zarr store; of each call the chunks that it needs are read once.

    Args:
        store: its path, a folder or a ``.zip``.
        arrays: their names in it: each with one sample a row, shape (samples, ...); all have as
            many rows. Of numbers, or of strings. None: the store is an array itself.
        shuffle: whether each epoch has all samples in an order of its own. In a store that was
            written in chunks of many rows each of them is then read, and decompressed, many times:
            write chunks of one row, or a few.
        seed: of these orders; default: that of ``keras.utils.set_random_seed``.
        damaged: "raise", or "skip", see :func:`dataset_of`.

    Returns:
        Of one array its rows, of several tuples of rows.

    Raises:
        DataError: zarr is not installed, or the store is missing, not Zarr, or has no such array.

    Example::

        samples = tnt.data.zarr("scan.zarr", "images", "labels", shuffle=True)
    """
    library_of_zarr = library("zarr", "Zarr stores")
    path = existing(os.fspath(store))
    try:
        opened = library_of_zarr.open(path, mode="r")
    except Exception as error:  # each kind of store has errors of its own
        raise DataError(f"{path} cannot be read as Zarr: {error}.") from error
    if isinstance(opened, library_of_zarr.Array):
        if arrays:
            raise DataError(f"{path} is a single array: leave the names out.")
        return table([_table(path, opened)], shuffle, seed, damaged)
    names = ", ".join(sorted(name for name, _ in opened.arrays()))
    if not arrays:
        raise DataError(f"Name the arrays of {path} to read; it has {names}.")
    for name in arrays:
        if not isinstance(opened.get(name), library_of_zarr.Array):
            raise DataError(f"{path} has no array {name}; it has {names}.")
    return table([_table(f"{n} in {path}", opened[n]) for n in arrays], shuffle, seed, damaged)


def _table(name: str, array: Any) -> Table:
    # Zarr has strings and bytes of any length, and no other objects.
    return Table(
        name, array.shape, TEXT if array.dtype.kind in "OT" else array.dtype,
        lambda rows: array.oindex[rows], lambda rows, block: array.oindex[(rows, *block.index)],
    )  # fmt: skip
