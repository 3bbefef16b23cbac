"""How many samples the batches of what ``fit`` is given have, before any of them is read."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tnt_notebook.keras.datasets import inputs_of, name_of, number_of

#: Of arrays, where a fit says none.
KERAS_BATCH = 32

#: What makes of batches as many samples each; of zip, the first of its inputs says it.
_KEEPS = {
    "assert_cardinality", "cache", "map", "options", "prefetch", "repeat", "shuffle", "skip",
    "take", "zip",
}  # fmt: skip


def is_of_arrays(x: Any) -> bool:
    """Whether Keras makes the batches: of arrays, tensors, tables and lists of numbers."""
    if isinstance(x, (keras.utils.PyDataset, Iterator)):
        return False
    leaves = keras.tree.flatten(x)
    return bool(leaves) and all(hasattr(one, "shape") or np.isscalar(one) for one in leaves)


def batch_size_of(x: Any, given: int | None) -> int | None:
    """Samples of a global batch; None where that is not known before one is read.

    Args:
        x, given: what ``fit`` is given as ``x`` and ``batch_size``.
    """
    if isinstance(x, tf.data.Dataset):
        return _of_dataset(x)
    if is_of_arrays(x):
        return given or KERAS_BATCH
    said = getattr(x, "batch_size", None)  # of torch's DataLoader, and of many a PyDataset
    return said if isinstance(said, int) and said > 0 else None


def _of_dataset(dataset: tf.data.Dataset) -> int | None:
    shapes = [getattr(spec, "shape", None) for spec in keras.tree.flatten(dataset.element_spec)]
    if shapes and shapes[0] is not None and shapes[0].rank and shapes[0][0] is not None:
        return int(shapes[0][0])
    while (name := name_of(dataset)) in _KEEPS:
        dataset = inputs_of(dataset)[0]
    return number_of(dataset, "batch_size") if name.endswith("batch") else None
