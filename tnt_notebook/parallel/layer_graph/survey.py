"""What can be known of a graph's values before there are any: their shapes, and their masks.

The calls run once on tensors without numbers. A dimension that then is as large as the batch is the
batch's; one that is unknown then may differ from batch to batch, and goes with the value from stage
to stage. A mask (of an Embedding or Masking layer) hangs on a tensor in Keras; here it is a value
of its own, which calls give and take, so that it comes to every stage that needs it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import keras
import tensorflow as tf

from tnt_notebook.errors import ModelError
from tnt_notebook.keras.graph import mask_of, run_symbolically
from tnt_notebook.parallel.consistency.model_state import refuse_stateful
from tnt_notebook.parallel.layer_graph.graph import SAMPLES, Call, Dimension, Graph, graph_of

#: Samples of the batch without numbers: what no function of it is by accident.
_BATCH = 1009


def surveyed(model: keras.Model) -> Graph:
    """The graph of a model, with shapes and masks. Raises ModelError where it has none, or cannot
    be trained in micro-batches: an output does not have one row per sample, or a layer is
    stateful."""
    refuse_stateful(model)
    graph = graph_of(model)
    values: dict[int, Any] = {}
    numbers: dict[int, int] = {}  # of values and masks, by id of the tensor
    tensors: list[Any] = []  # whose ids they are

    def number(tensor: Any, value: int) -> None:
        numbers.setdefault(id(tensor), value)
        tensors.append(tensor)

    def run(*inputs: Any) -> None:
        values.update(zip(graph.inputs, inputs, strict=True))
        for value, tensor in values.items():
            number(tensor, value)
        for place, call in enumerate(graph.calls):
            taken = {n: mask_of(values[n]) for n in call.takes}
            call.run(values, training=False)
            for value in call.gives:
                number(values[value], value)
            made = {}
            for value in call.gives:
                mask = mask_of(values[value])
                if mask is not None and id(mask) not in numbers:
                    made[value] = graph.new_value(_described(mask, graph.specs[value].name))
                    values[made[value]] = mask
                    number(mask, made[value])
            masks = {n: numbers[id(mask)] for n, mask in taken.items() if mask is not None}
            graph.calls[place] = _with_masks(call, masks, made)

    run_symbolically(run, *(_without_numbers(graph, n) for n in graph.inputs))
    graph.shapes = [_shape(graph, n, values[n].shape) for n in range(len(graph.specs))]
    for value, tensor in values.items():
        graph.specs[value] = _with_dtype(graph.specs[value], tensor.dtype)
    masks = {n: mask_of(tensor) for n, tensor in values.items()}
    graph.masked = {n: numbers[id(mask)] for n, mask in masks.items() if mask is not None}
    graph.dense = frozenset(n for n, tensor in values.items() if isinstance(tensor, tf.Tensor))
    graph.sparse = frozenset(n for n, t in values.items() if isinstance(t, tf.SparseTensor))
    for value in graph.outputs:
        found, spec = values[value].shape, graph.specs[value]
        if value not in graph.dense:
            raise ModelError(
                f"The model's output {spec.name!r} is not a dense tensor, and a pipeline cannot "
                "join those of micro-batches: let the model end in a dense tensor."
            )
        if len(found) == 0 or found[0] not in (_BATCH, None):
            raise ModelError(
                f"The model's output {spec.name!r} does not have one row per sample: for "
                f"{_BATCH} samples its shape is {tuple(found)}. A pipeline joins the outputs of "
                "micro-batches along their first axis, which must be that of the samples."
            )
    return graph


def _without_numbers(graph: Graph, value: int) -> keras.KerasTensor:
    spec = graph.specs[value]
    return keras.KerasTensor((_BATCH, *spec.shape[1:]), spec.dtype, sparse=spec.sparse)


def _with_dtype(spec: keras.KerasTensor, found: Any) -> keras.KerasTensor:
    """With the dtype that values have: lookups say another one than they give."""
    dtype = keras.backend.standardize_dtype(found)
    if dtype == spec.dtype:
        return spec
    return keras.KerasTensor(spec.shape, dtype, sparse=spec.sparse, name=spec.name)


def _described(mask: Any, name: str) -> keras.KerasTensor:
    shape = (None if n == _BATCH else n for n in mask.shape)
    return keras.KerasTensor(tuple(shape), mask.dtype, name=f"mask of {name}")


def _with_masks(call: Call, masks: dict[int, int], made: dict[int, int]) -> Call:
    return replace(
        call,
        takes=tuple(dict.fromkeys((*call.takes, *masks.values()))),
        gives=(*call.gives, *made.values()),
        masks=masks,
        masked=tuple(made),
    )


def _shape(graph: Graph, value: int, found: Sequence[int | None]) -> tuple[Dimension, ...]:
    """From what was found on the batch without numbers, and what Keras says of the value."""
    described = list(graph.specs[value].shape)
    if any(graph.specs[n].shape[0] is not None for n in graph.inputs):
        described[:1] = [None] * len(described[:1])  # the size of a batch that there may not be
    shape: list[Dimension] = []
    for here, said in zip(found, described, strict=True):
        if here == _BATCH:
            shape.append(SAMPLES)
        else:
            shape.append(said if here in (None, said) else None)
    return tuple(shape)
