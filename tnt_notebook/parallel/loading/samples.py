"""Small generated images in files of each format, in a folder that is removed.

The folder lies where this rank's temporary files do, which goes with the cluster, also where a rank
is killed; what a killed rank has left is removed before the next measurement, too.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import tensorflow as tf

#: Samples in a row group of a Parquet file.
ROWS = 16
#: Shards of TFRecord of a rank.
SHARDS = 4
_PREFIX = "tnt-loading-"  # and the pid of the rank
_COARSE = 8  # pixels between the numbers that an image is interpolated of
_NOISE = 6.0
_QUALITY = 90  # of JPEG


@dataclass(frozen=True)
class Files:
    """What a rank reads of one format.

    Attributes:
        paths: each a sample; or shards, or one table.
        sample_bytes: bytes of storage for a sample, on average.
        side: pixels of a square image, of 3 bytes each.
    """

    paths: tuple[str, ...]
    sample_bytes: float
    side: int


@contextlib.contextmanager
def folder() -> Iterator[Path]:
    """A folder of this rank, removed at the end."""
    temporary = Path(tempfile.gettempdir())
    for remains in temporary.glob(f"{_PREFIX}*-*"):
        pid = remains.name.removeprefix(_PREFIX).partition("-")[0]
        ours = remains.lstat().st_uid == os.geteuid()
        if ours and pid.isdecimal() and not psutil.pid_exists(int(pid)):
            shutil.rmtree(remains, ignore_errors=True)  # another rank may remove it, too
    own = Path(tempfile.mkdtemp(prefix=f"{_PREFIX}{os.getpid()}-"))
    try:
        yield own
    finally:
        shutil.rmtree(own)


def images(count: int, side: int, seed: int) -> np.ndarray:
    """Images that compress about as photographs do, uint8 of shape (count, side, side, 3)."""
    random = np.random.default_rng(seed)
    coarse = random.uniform(0, 255, (count, -(-side // _COARSE), -(-side // _COARSE), 3))
    smooth = tf.image.resize(coarse.astype("float32"), (side, side), "bicubic").numpy()
    noisy = smooth + random.normal(0, _NOISE, smooth.shape)
    return noisy.clip(0, 255).astype("uint8")


def missing(name: str) -> str:
    """Why files of a format cannot be made here; empty: they can."""
    if name == "parquet" and importlib.util.find_spec("pyarrow") is None:
        return "needs pyarrow: pip install 'tnt-notebook[data]'"
    return ""


def written(name: str, pixels: np.ndarray, where: Path) -> Files:
    """Writes images in a format.

    Args:
        name: raw, png, jpeg, tfrecord or parquet.
        pixels: uint8 of shape (count, side, side, 3).
    """
    own = where / name
    own.mkdir()
    paths = _WRITERS[name](pixels, own)
    total = sum(path.stat().st_size for path in paths)
    return Files(tuple(map(str, paths)), total / len(pixels), pixels.shape[1])


def _one_each(encode: Callable[[np.ndarray], bytes]) -> Callable[[np.ndarray, Path], list[Path]]:
    def write(pixels: np.ndarray, own: Path) -> list[Path]:
        paths = [own / f"{i:05}" for i in range(len(pixels))]
        for path, image in zip(paths, pixels, strict=True):
            path.write_bytes(encode(image))
        return paths

    return write


def _jpeg(image: np.ndarray) -> bytes:
    return bytes(tf.io.encode_jpeg(image, quality=_QUALITY).numpy())


def _png(image: np.ndarray) -> bytes:
    return bytes(tf.io.encode_png(image).numpy())


def _records(pixels: np.ndarray, own: Path) -> list[Path]:
    paths = [own / f"{i}.tfrecord" for i in range(SHARDS)]
    for shard, path in enumerate(paths):
        with tf.io.TFRecordWriter(str(path)) as writer:
            for image in pixels[shard::SHARDS]:
                feature = {"image": tf.train.Feature(bytes_list=_bytes_list(_jpeg(image)))}
                example = tf.train.Example(features=tf.train.Features(feature=feature))
                writer.write(example.SerializeToString())
    return paths


def _bytes_list(value: bytes) -> Any:
    return tf.train.BytesList(value=[value])


def _table(pixels: np.ndarray, own: Path) -> list[Path]:
    import pyarrow
    import pyarrow.parquet

    path = own / "images.parquet"
    table = pyarrow.table({"image": [_jpeg(image) for image in pixels]})
    # JPEG is as small as it gets.
    pyarrow.parquet.write_table(
        table, path, row_group_size=ROWS, compression="none", use_dictionary=False
    )
    return [path]


_WRITERS: dict[str, Callable[[np.ndarray, Path], list[Path]]] = {
    "raw": _one_each(lambda image: image.tobytes()),
    "png": _one_each(_png),
    "jpeg": _one_each(_jpeg),
    "tfrecord": _records,
    "parquet": _table,
}
