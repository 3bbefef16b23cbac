"""What a ``tf.data`` pipeline is made of. The same from TensorFlow 2.16 to 2.21: classes are named
after the op, and keep what they were given in attributes."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import tensorflow as tf
from keras.src.trainers.data_adapters import tf_dataset_adapter
from tensorflow.python.data.util import structure
from tensorflow.python.framework import op_def_registry

#: How what is made by a class is called in Python, where that is not the name of the class.
_NAMES = {
    "parallel_map": "map", "parallel_batch": "batch", "parallel_interleave": "interleave",
    "tensor_slice": "from_tensor_slices", "sparse_tensor_slice": "from_sparse_tensor_slices",
    "tensor": "from_tensors", "dense_to_ragged": "ragged_batch",
    "directed_interleave": "sample_from_datasets", "tf_record": "TFRecordDataset",
    "text_line": "TextLineDataset", "fixed_length_record": "FixedLengthRecordDataset",
}  # fmt: skip

#: Ops that count as stateful, and of which it does not matter how often and in which order they
#: run; functions that they call are looked at by themselves.
_HARMLESS = {
    "Assert", "Case", "If", "LookupTableFindV2", "LookupTableSizeV2", "PartitionedCall", "PrintV2",
    "ReadVariableOp", "StatefulPartitionedCall", "VarHandleOp", "While",
}  # fmt: skip

#: Functions in Python: what they do between calls is not seen.
OF_PYTHON = {"EagerPyFunc", "PyFunc", "PyFuncStateless"}


def name_of(dataset: tf.data.Dataset) -> str:
    """What has made a dataset, as one writes it: ``"map"``, ``"from_tensor_slices"``."""
    words = re.sub(r"Dataset(V\d)?$", "", type(dataset).__name__.lstrip("_"))
    name = re.sub(r"(?<=[a-z])(?=[A-Z])|(?<=TF)(?=R)", "_", words).lower()
    name = _NAMES.get(name, name)
    if name == "flat_map" and "GeneratorDataset" in ops_within(dataset):
        return "from_generator"
    return name


def inputs_of(dataset: tf.data.Dataset) -> list[tf.data.Dataset]:
    """The datasets from which it is made."""
    inputs = dataset._inputs()
    if [type(each).__name__ for each in inputs] == ["_RestructuredDataset"]:
        # Before unbatch and rebatch TensorFlow makes all leaves dense, by a map of its own.
        (mapped,) = inputs[0]._inputs()
        return list(mapped._inputs())
    return list(inputs)


def zipped(dataset: tf.data.Dataset) -> Any:
    """What was zipped: a structure of datasets."""
    return dataset._datasets


def number_of(dataset: tf.data.Dataset, name: str) -> int | None:
    """A number that it was given: the ``count`` of repeat, take and skip, ``buffer_size``,
    ``batch_size``, ``drop_remainder``, or the ``num_parallel_calls`` of a map. None where it has
    none, or where it is not known before it runs."""
    given = getattr(dataset, f"_{name}", None)
    value = None if given is None else tf.get_static_value(given)
    return None if value is None else int(value)


def file_of(cached: tf.data.Dataset) -> str:
    """The file of a cache; empty if it is in memory."""
    return str(tf.get_static_value(cached._filename).decode())


def reshuffles(shuffled: tf.data.Dataset) -> bool:
    """Whether every iterator shuffles anew."""
    return shuffled._reshuffle_each_iteration is not False


def function_of(mapped: tf.data.Dataset) -> Callable[[Any], Any]:
    """The function of a map, as it was traced, from an element to an element."""
    traced, given = mapped._map_func, mapped._input_dataset.element_spec

    def function(element: Any) -> Any:
        made = traced.function(*structure.to_tensor_list(given, element))
        return structure.from_tensor_list(traced.output_structure, made)

    return function


def written_function_of(mapped: tf.data.Dataset) -> Callable[..., Any]:
    """The function that was given to a map."""
    written: Callable[..., Any] = mapped._map_func._func
    return written


def weighs_classes(function: Callable[..., Any]) -> bool:
    """Whether a map was made by Keras, of the ``class_weight`` of ``fit``."""
    return function.__module__ == tf_dataset_adapter.__name__


def ops_within(dataset: tf.data.Dataset) -> set[str]:
    """The kinds of ops in the functions of a dataset, those that they call included."""
    return {node.op for node in _nodes(dataset)}


def state_within(dataset: tf.data.Dataset) -> set[str]:
    """Those of them that keep something from call to call, or draw random numbers."""
    return {node.op for node in _stateful(dataset)}


def makes_in_python(dataset: tf.data.Dataset) -> bool:
    """Whether a function of it, or of what it is made from, runs in Python."""
    return bool(ops_within(dataset) & OF_PYTHON) or any(map(makes_in_python, inputs_of(dataset)))


def state_of_run_within(dataset: tf.data.Dataset) -> set[str]:
    """Those without what draws random numbers that no seed determines."""
    return {node.op for node in _stateful(dataset) if not _draws_unseeded(node)}


def _stateful(dataset: tf.data.Dataset) -> Iterator[Any]:
    for node in _nodes(dataset):
        registered = op_def_registry.get(node.op)  # None: a function, which is looked at by itself
        if registered is not None and registered.is_stateful and node.op not in _HARMLESS:
            yield node


def _draws_unseeded(node: Any) -> bool:
    return "seed2" in node.attr and not node.attr["seed"].i and not node.attr["seed2"].i


def _nodes(dataset: tf.data.Dataset) -> Iterator[Any]:
    for wrapped in dataset._functions():
        graph = wrapped.function.graph.as_graph_def()
        yield from graph.node
        for function in graph.library.function:
            yield from function.node_def
