"""Folders of images, a folder a class."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import tensorflow as tf

from tnt_notebook.errors import DataError
from tnt_notebook.parallel.data.readers.paths import existing
from tnt_notebook.parallel.data.readers.samples import Damaged, Source, dataset_of

_ENDINGS = {".jpg", ".jpeg", ".png", ".bmp", ".gif"}
#: Bytes of images that are decoded one after the other by one call; several calls run at a time.
_AT_ONCE_BYTES = 1 << 20


def images(
    folder: str | os.PathLike[str],
    size: tuple[int, int] | None = None,
    channels: int = 3,
    classes: Sequence[str] | None = None,
    shuffle: bool = False,
    seed: int | None = None,
    damaged: Damaged = "raise",
) -> tf.data.Dataset:
    """Images in folders, one folder for each class: JPEG, PNG, BMP, or the first frame of a GIF.

    Args:
        folder: with a folder for each class, whose images may lie in further folders.
        size: (height, width) to which each image is resized, by bilinear interpolation. Default:
            all images must have the size of the first.
        channels: 3, or 1 for shades of grey, or 4 with transparency (PNG).
        classes: names of the folders to read, in the order of their labels. Default: all, sorted by
            name. ``tnt.data.classes_of(folder)`` gives these.
        shuffle: whether each epoch has all samples in an order of its own. Without, they come
            sorted by class and name, and a batch has few classes.
        seed: of these orders; default: that of ``keras.utils.set_random_seed``.
        damaged: what is done with a sample that cannot be read: "raise" ends with a DataError that
            names it; "skip" counts and tells it, and puts the next one that can be read in its
            place.

    Returns:
        ``(image, label)``: uint8 of shape (height, width, channels), and int64 from 0.

    Raises:
        DataError: there is no such folder, or no image in a class.

    Example::

        flowers = tnt.data.images("flowers/", size=(224, 224), shuffle=True, seed=1)
        flowers = flowers.map(lambda x, y: (tf.image.random_flip_left_right(x), y), -1)
        model.fit(flowers.batch(256), epochs=3)
    """
    root = existing(os.fspath(folder))
    names = classes_of(root) if classes is None else tuple(classes)
    files: list[str] = []
    labels: list[int] = []
    for label, name in enumerate(names):
        found = _images_in(Path(existing(os.path.join(root, name))))
        if not found:
            raise DataError(f"There is no image in {os.path.join(root, name)}.")
        files += found
        labels += [label] * len(found)
    known = np.array(labels, np.int64)
    shape = (*size, channels) if size else _decoded(files[0], None, channels).shape

    def read(numbers: np.ndarray) -> Sequence[np.ndarray]:
        found = np.empty((len(numbers), *shape), np.uint8)
        for i, number in enumerate(numbers):
            image = _decoded(files[number], size, channels)
            if image.shape != shape:
                raise DataError(
                    f"it has {image.shape[0]} x {image.shape[1]} pixels where the first image has "
                    f"{shape[0]} x {shape[1]}: give size=(height, width) to resize them"
                )
            if image.dtype == found.dtype:
                found[i] = image
            else:
                np.rint(image, out=found[i], casting="unsafe")
        return found, known[numbers]

    spec = (tf.TensorSpec(shape, tf.uint8), tf.TensorSpec((), tf.int64))
    source = Source(len(files), spec, read, lambda number: files[number], _at_once(shape))
    return dataset_of(source, shuffle, seed, damaged)


def _at_once(shape: Sequence[int]) -> int:
    return max(1, min(64, _AT_ONCE_BYTES // int(np.prod(shape))))


def classes_of(folder: str | os.PathLike[str]) -> tuple[str, ...]:
    """The classes of a folder of images: the names of the folders in it, sorted; a label is a place
    in this.

    Raises:
        DataError: there is no such folder, or none in it.
    """
    with os.scandir(existing(os.fspath(folder))) as entries:
        names = sorted(each.name for each in entries if each.is_dir() and each.name[0] != ".")
    if not names:
        raise DataError(f"{os.fspath(folder)} has no folders in it; each class of images is one.")
    return tuple(names)


def _images_in(folder: Path) -> list[str]:
    return sorted(
        os.path.join(at, name)
        for at, _, names in os.walk(folder, followlinks=True)
        for name in names
        if os.path.splitext(name)[1].lower() in _ENDINGS and name[0] != "."
    )


def _decoded(file: str, size: tuple[int, int] | None, channels: int) -> np.ndarray:
    """An image: uint8, or, resized, float32 that is to be rounded.

    Ops that run at once, one by one: they let other threads of Python run, and need none of the
    threads that may all be waiting for images. Raw ones, since what is around them takes longer
    than a small image; and no copies, whose memory is new each time, and dear.
    """
    with open(file, "rb") as opened:
        encoded = opened.read()
    image = tf.raw_ops.DecodeImage(contents=encoded, channels=channels, expand_animations=False)
    if size is None or tuple(image.shape)[:2] == tuple(size):
        return np.asarray(memoryview(image))
    with tf.device("CPU"):
        alone = tf.raw_ops.ExpandDims(input=image, axis=0)
        resized = tf.raw_ops.ResizeBilinear(images=alone, size=size, half_pixel_centers=True)
    return np.asarray(memoryview(resized))[0]
