"""Keras's adapters, which make batches of all that ``fit`` takes. The same from 3.10 to 3.15."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import tensorflow as tf
from keras.src.trainers import data_adapters
from keras.src.trainers.data_adapters import array_slicing, data_adapter_utils
from keras.src.trainers.data_adapters.array_data_adapter import ArrayDataAdapter
from keras.src.trainers.data_adapters.data_adapter import DataAdapter as DataAdapter
from keras.src.trainers.data_adapters.generator_data_adapter import GeneratorDataAdapter
from keras.src.trainers.data_adapters.py_dataset_adapter import PyDatasetAdapter
from keras.src.trainers.data_adapters.tf_dataset_adapter import TFDatasetAdapter
from keras.src.trainers.data_adapters.torch_data_loader_adapter import TorchDataLoaderAdapter


def adapter_of(
    x: Any,
    y: Any,
    sample_weight: Any,
    batch_size: int | None,
    steps_per_epoch: int | None,
    shuffle: Any,
    class_weight: dict[int, float] | None,
) -> DataAdapter:
    """The adapter that ``fit`` would choose for these arguments of it."""
    return data_adapters.get_data_adapter(
        x, y, sample_weight, batch_size, steps_per_epoch, shuffle, class_weight
    )


def is_of_arrays(adapter: DataAdapter) -> bool:
    return isinstance(adapter, ArrayDataAdapter)


def is_of_generator(adapter: DataAdapter) -> bool:
    return isinstance(adapter, GeneratorDataAdapter)


def is_of_torch(adapter: DataAdapter) -> bool:
    return isinstance(adapter, TorchDataLoaderAdapter)


def is_of_tf_data(adapter: DataAdapter) -> bool:
    return isinstance(adapter, TFDatasetAdapter)


def py_dataset_of(adapter: DataAdapter) -> keras.utils.PyDataset | None:
    """The PyDataset that an adapter reads, if it reads one; of one that stands for another
    (`whole`), that."""
    if not isinstance(adapter, PyDatasetAdapter):
        return None
    return getattr(adapter.py_dataset, "whole", adapter.py_dataset)


def dense_arrays(adapter: DataAdapter) -> Any | None:
    """The arrays of an adapter as tensors, whole; None if it has others than dense ones."""
    if not isinstance(adapter, ArrayDataAdapter):
        return None
    arrays = array_slicing.convert_to_sliceable(adapter._inputs, target_backend="tensorflow")
    dense = (np.ndarray, tf.Tensor, type(None))
    if not all(isinstance(leaf, dense) for leaf in keras.tree.flatten(arrays)):
        return None
    with tf.device("/CPU:0"):  # as Keras's adapter: all of the input need not fit into a GPU
        return keras.tree.lists_to_tuples(
            keras.tree.map_structure(
                lambda leaf: None if leaf is None else tf.convert_to_tensor(leaf), arrays
            )
        )


def numpy_arrays(adapter: DataAdapter) -> tuple[Any, list[str]] | None:
    """The arrays of an adapter as they are, and of those that are there the dtypes in which they
    are given; None if it has others than arrays of numbers, of NumPy."""
    if not isinstance(adapter, ArrayDataAdapter):
        return None
    leaves = [leaf for leaf in keras.tree.flatten(adapter._inputs) if leaf is not None]
    if not all(isinstance(leaf, np.ndarray) and leaf.dtype.kind in "biuf" for leaf in leaves):
        return None

    floatx = keras.config.floatx()
    dtypes = [floatx if leaf.dtype.kind == "f" else leaf.dtype.name for leaf in leaves]
    return keras.tree.lists_to_tuples(adapter._inputs), dtypes


@tf.autograph.experimental.do_not_convert  # converting takes longer than tracing, and does nothing
def index_batches(adapter: ArrayDataAdapter) -> tf.data.Dataset:
    """For each batch that an adapter of arrays makes, which samples are in it, in their order.
    Every iterator over it shuffles anew, as the adapter's do."""
    count, size = adapter._num_samples, adapter._batch_size
    if adapter._shuffle:
        return ArrayDataAdapter(
            np.arange(count), batch_size=size, shuffle=adapter._shuffle
        ).get_tf_dataset()
    begins = tf.data.Dataset.range(0, count, size)
    return begins.map(lambda begin: tf.range(begin, tf.minimum(begin + size, count)))


def without_validation_split(arrays: Any, fraction: float) -> tuple[Any, Any]:
    """What ``validation_split`` leaves to train on, and what it takes."""
    return array_slicing.train_validation_split(arrays, validation_split=fraction)


def weights_of_classes(y: Any, class_weight: dict[int, float]) -> Any:
    """The weight of each sample, by its class."""
    return data_adapter_utils.class_weight_to_sample_weights(y, class_weight)
