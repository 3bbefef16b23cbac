"""Hashes of input before it is read: do ranks that divide the work on samples have the same ones?

Only some of the numbers are looked at, in pieces that lie apart, so that it takes no time and reads
next to nothing of what may be larger than memory.
"""

from __future__ import annotations

import hashlib
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tnt_notebook.keras.datasets import inputs_of, name_of, written_function_of
from tnt_notebook.parallel.data.blocks import about_reader

#: Of an array so many pieces are looked at, of so many numbers each.
_PIECES, _NUMBERS = 64, 512


def fingerprint_of(array: np.ndarray) -> str:
    """Of an array: its shape, its dtype, and some of its numbers."""
    flat = array.reshape(-1)
    begins = np.linspace(0, max(0, flat.size - _NUMBERS), _PIECES).astype(np.int64)
    found = hashlib.blake2b(f"{array.shape} {array.dtype}".encode(), digest_size=8)
    for begin in np.unique(begins):
        piece = flat[begin : begin + _NUMBERS]
        is_text = piece.dtype.kind in "OT"  # of which the bytes are places in memory
        found.update(repr(piece.tolist()).encode() if is_text else piece.tobytes())
    return found.hexdigest()


def fingerprint_of_arrays(arrays: Any) -> str:
    """Of dense tensors in any structure."""
    leaves = keras.tree.flatten(arrays)
    return ", ".join(fingerprint_of(np.asarray(leaf)) for leaf in leaves if leaf is not None)


def fingerprint_of_sources(dataset: tf.data.Dataset) -> str:
    """Of the readers of files that a dataset begins with; empty where there are none."""
    parts = [fingerprint_of_sources(source) for source in inputs_of(dataset)]
    if (
        name_of(dataset) == "map"
        and (told := about_reader(written_function_of(dataset))) is not None
    ):
        parts.append(told.fingerprint())
    return "; ".join(filter(None, parts))
