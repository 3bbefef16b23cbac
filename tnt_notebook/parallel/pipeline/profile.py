"""How long each layer of a model takes here, and what lies between layers: to cut it well."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from typing import Any

import keras
import tensorflow as tf

from tnt_notebook.parallel.pipeline.graph import Call, Graph
from tnt_notebook.parallel.pipeline.partition import Weighing
from tnt_notebook.parallel.presence import is_here, stand_ins

_REPEATS = 3

#: Where sizes are unknown: steps of a sequence, pixels along a side of an image.
_UNKNOWN = 64

#: What a message between ranks costs: taken for a fast network or the memory of a node, and small
#: beside the layers that are worth a pipeline.
_LATENCY_S, _BYTES_PER_S = 30e-6, 2e9


def weigh(model: keras.Model, graph: Graph, rows: int) -> Weighing:
    """Runs each call of a model, forward and backward, on a micro-batch of ``rows`` samples.

    The model's variables are as before afterwards. Equal layers on equal shapes are measured once.
    """
    state = [(v, tf.identity(v.value)) for v in model.non_trainable_variables if is_here(v)]
    values: dict[int, Any] = {n: _sample(graph.specs[n], rows) for n in graph.inputs}
    known: dict[str, float] = {}
    seconds = []
    try:
        for call in graph.calls:
            with stand_ins(getattr(call.operation, "variables", [])):
                call.run(values, training=True)
                key = _key(call, values)
                if key not in known:
                    known[key] = min(_time(call, values) for _ in range(_REPEATS))
            seconds.append(known[key])
    finally:
        for variable, value in state:
            variable.value.assign(value)
    sizes = {n: _bytes(tensor) for n, tensor in values.items()}
    return Weighing(
        seconds,
        {n: 2 * (_LATENCY_S + size / _BYTES_PER_S) for n, size in sizes.items()},
        [sum(sizes[n] for n in call.gives) for call in graph.calls],
        [4 * sum(_bytes(v) for v in _weights(call)) for call in graph.calls],
    )


def _time(call: Call, values: dict[int, Any]) -> float:
    inputs = {n: tf.identity(values[n]) for n in call.takes}
    begin = time.perf_counter()
    with tf.GradientTape() as tape:
        floating = [t for t in inputs.values() if t.dtype.is_floating]
        tape.watch(floating)
        made = dict(inputs)
        call.run(made, training=True)
    outputs = [made[n] for n in call.gives if made[n].dtype.is_floating]
    if outputs:
        gradients = tape.gradient(outputs, [*floating, *(v.value for v in _weights(call))])
        # Until then a GPU may still be at work.
        for gradient in keras.tree.flatten(gradients)[:1]:
            if gradient is not None:
                tf.convert_to_tensor(gradient).numpy()
    return time.perf_counter() - begin


def _weights(call: Call) -> Sequence[keras.Variable]:
    operation = call.operation
    return operation.trainable_variables if isinstance(operation, keras.Layer) else []


def _key(call: Call, values: dict[int, Any]) -> str:
    """The same for calls that take the same time."""
    shapes = [(values[n].shape.as_list(), values[n].dtype.name) for n in call.takes]
    if isinstance(call.operation, keras.Layer):
        config = {k: v for k, v in call.operation.get_config().items() if k != "name"}
        return f"{type(call.operation).__name__} {config} {shapes}"
    return f"{call.name} {shapes}"  # an operation of keras.ops: its arguments are not known


def _sample(spec: keras.KerasTensor, rows: int) -> tf.Tensor:
    shape = [rows, *(_UNKNOWN if n is None else n for n in spec.shape[1:])]
    dtype = tf.as_dtype(spec.dtype)
    if dtype.is_floating:
        return tf.cast(tf.random.stateless_uniform(shape, (0, 1)), dtype)
    return tf.zeros(shape, dtype)


def _bytes(value: Any) -> int:
    return math.prod(value.shape) * tf.as_dtype(value.dtype).size
