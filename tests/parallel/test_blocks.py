"""Blocks of samples: of arrays and files nothing else is read, and of other input they are what is
cut out of whole samples."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import tensorflow as tf
import zarr

import tnt_notebook as tnt
from tnt_notebook.parallel.data import Block, Replica, own_part, sharded
from tnt_notebook.parallel.data.blocks import InBlocks, gathered_block, lines_of
from tnt_notebook.parallel.data.fingerprints import fingerprint_of

SHAPE = (6, 5, 4, 2)
X = np.arange(7 * 240, dtype="float32").reshape(7, *SHAPE)
BOXES = [
    ((1, (0, 2)),), ((1, (2, 6)),), ((2, (3, 5)),), ((3, (1, 2)),), ((4, (1, 2)),),
    ((1, (2, 4)), (3, (0, 3))),
]  # fmt: skip


def cut(box: Any, rows: Any = slice(None)) -> np.ndarray:
    return X[rows][(slice(None), *Block(0, SHAPE, box).index)]


@pytest.mark.parametrize("box", BOXES, ids=str)
def test_a_block_of_an_array_and_of_a_line_of_numbers(box):
    block, chosen = Block(0, SHAPE, box), [5, 0, 3]
    taken = gathered_block(tf.constant(X), tf.constant(chosen), block)
    np.testing.assert_array_equal(taken, cut(box, chosen))
    flat = X[1].ravel()
    lines = np.concatenate([flat[first : first + count] for first, count in lines_of(block)])
    np.testing.assert_array_equal(lines.reshape(block.size), cut(box, [1])[0])


def numpy_file(folder: Path) -> tf.data.Dataset:
    np.save(folder / "x.npy", X)
    return tnt.data.arrays(folder / "x.npy", np.arange(7))


def memory_map(folder: Path) -> tf.data.Dataset:
    np.save(folder / "map.npy", X)
    return tnt.data.arrays(np.load(folder / "map.npy", mmap_mode="r"), np.arange(7))


def hdf5(folder: Path) -> tf.data.Dataset:
    with h5py.File(folder / "all.h5", "w") as file:
        file["x"], file["y"] = X, np.arange(7)
    return tnt.data.hdf5(folder / "all.h5", "x", "y")


def zarr_store(folder: Path) -> tf.data.Dataset:
    group = zarr.open_group(folder / "all.zarr", mode="w")
    group.create_array("x", data=X, chunks=(1, 2, 5, 4, 2))
    group.create_array("y", data=np.arange(7))
    return tnt.data.zarr(folder / "all.zarr", "x", "y")


def of_tensors(folder: Path) -> tf.data.Dataset:
    return tf.data.Dataset.from_tensor_slices((X, np.arange(7)))


def mapped(folder: Path) -> tf.data.Dataset:
    return numpy_file(folder).map(lambda x, y: (x + 1 - 1, y))


SOURCES: dict[str, Callable[[Path], tf.data.Dataset]] = {
    "NumPy": numpy_file, "memory map": memory_map, "HDF5": hdf5, "Zarr": zarr_store,
    "tensors": of_tensors, "a map": mapped,
}  # fmt: skip


@pytest.mark.parametrize("name", SOURCES)
def test_batches_of_blocks(name, tmp_path):
    batches = SOURCES[name](tmp_path).cache().batch(3).prefetch(1)
    block = Block(0, SHAPE, BOXES[-1])
    parts, _ = own_part(batches, Replica(1, 2), blocks=(block,))
    assert parts.element_spec[0][0].shape[1:] == block.size
    rows = [[1, 2], [4, 5], [6]]
    for (batch, share), own in zip(parts, rows, strict=True):
        np.testing.assert_array_equal(batch[0], cut(BOXES[-1], own))
        np.testing.assert_array_equal(batch[1], own)
        assert int(share.local) == (len(own) if own != [6] else 1)
    whole, _ = own_part(batches, Replica(1, 2))
    assert whole.element_spec[0][0].shape[1:] == SHAPE


@pytest.mark.parametrize("name", ["NumPy", "Zarr"])
def test_nothing_else_of_a_sample_is_read(name, tmp_path):
    """What is not needed is not there any more: the file is cut short, or its chunks are gone."""
    dataset = SOURCES[name](tmp_path).batch(7)
    if name == "NumPy":
        with open(tmp_path / "x.npy", "r+b") as file:
            file.truncate(128 + 4 * (240 * 6 + 80))  # behind the block of the last sample
    else:
        for chunk in (tmp_path / "all.zarr/x/c").glob("*/[12]/**/*"):  # by sample, then by depth
            if chunk.is_file():
                chunk.write_bytes(b"no chunk")
    parts, _ = own_part(dataset, Replica(0, 1), blocks=(Block(0, SHAPE, BOXES[0]),))
    ((batch, _),) = parts
    np.testing.assert_array_equal(batch[0], cut(BOXES[0]))


def test_arrays_and_generators_come_in_blocks():
    block = Block(0, SHAPE, BOXES[1])

    def generated() -> Any:
        yield from ((X[i : i + 3], np.arange(i, i + len(X[i : i + 3]))) for i in (0, 3))

    for data in (
        sharded(Replica(0, 2), X, np.arange(7), batch_size=3), sharded(Replica(0, 2), generated()),
        sharded(Replica(0, 2), X.astype("float64"), np.arange(7), batch_size=3, copies=False),
    ):  # fmt: skip
        dataset = data.in_blocks((block,)).dataset
        first, share = next(iter(dataset))
        assert isinstance(first, InBlocks)
        np.testing.assert_array_equal(first.batch[0], cut(BOXES[1], [0]))
        assert int(share.total) == 3


def test_samples_of_another_shape_are_an_error():
    data = tf.data.Dataset.from_generator(
        lambda: iter([X]), output_signature=tf.TensorSpec(None, tf.float32)
    )
    with pytest.raises(tf.errors.InvalidArgumentError, match="not compatible"):
        parts, _ = own_part(data, Replica(0, 1), blocks=(Block(0, (9, 5, 4, 2), BOXES[0]),))
        list(parts)


def test_a_fingerprint_tells_arrays_apart(tmp_path):
    other = X.copy()
    other[3, 2, 1] += 1
    assert fingerprint_of(X) != fingerprint_of(other)
    assert fingerprint_of(X) == fingerprint_of(X.copy())
    assert fingerprint_of(X) != fingerprint_of(X.reshape(7, -1))
    file, same = (sharded(Replica(0, 2), numpy_file(tmp_path).batch(2)).fingerprint() for _ in "12")
    assert file and file == same
    np.save(tmp_path / "x.npy", X + 1)
    changed = tnt.data.arrays(tmp_path / "x.npy", np.arange(7)).batch(2)
    assert sharded(Replica(0, 2), changed).fingerprint() != file
