"""The profile of a model: how long each of its calls takes here, and what lies between them.

Calls are timed one by one (:mod:`.timing`). Up to `_MOST_ROWS` samples that is done with as many as
asked for; beyond, the times lie on a line through those of two sizes. What was measured of Keras's
layers and of ours is kept for the next time (:mod:`tnt_notebook.plan.measurements`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tnt_notebook.keras.absent import is_here, stand_ins
from tnt_notebook.parallel.pipeline.graph import Call, Graph
from tnt_notebook.parallel.pipeline.measurement_key import is_lasting, key_of
from tnt_notebook.parallel.pipeline.timing import inputs_of, learning_values, measure, with_rows
from tnt_notebook.plan import measurements
from tnt_notebook.plan.measurements import Measured
from tnt_notebook.plan.network import message_s
from tnt_notebook.plan.profile import Profile, Variable

#: More samples than the first are not measured, but extrapolated from both.
_MOST_ROWS, _FEW_ROWS = 64, 16

#: Called with how many of how many calls have been measured.
Report = Callable[[int, int], None]


def profile_of(
    model: keras.Model, graph: Graph, rows: int, report: Report | None = None
) -> Profile:
    """Times each call of a model on a micro-batch of ``rows`` samples, unless it is known.

    The model's variables are as before afterwards. Equal layers on equal shapes are measured once.

    Args:
        report: called before each measurement, and after the last.
    """
    sizes = [rows] if rows <= _MOST_ROWS else [_FEW_ROWS, _MOST_ROWS]
    learning = learning_values(graph)
    tasks = {
        (call_number, size): key_of(call, graph, learning, size)
        for call_number, call in enumerate(graph.calls)
        for size in sizes
    }
    known = measurements.load()
    missing = {key: task for task, key in tasks.items() if key not in known}
    new: dict[str, Measured] = {}
    # Seeds, too, and the moving averages of batch norm.
    state = [(v, tf.identity(v.value)) for v in model.non_trainable_variables if is_here(v)]
    try:
        for done, (key, (number, size)) in enumerate(missing.items()):
            if report is not None:
                report(done, len(missing))
            call = graph.calls[number]
            with stand_ins(getattr(call.operation, "variables", [])):
                new[key] = measure(call, graph, learning, size)
    finally:
        for variable, value in state:
            variable.value.assign(value)
    if missing and report is not None:
        report(len(missing), len(missing))
    lasting = {
        key: new[key] for key, (number, _) in missing.items() if is_lasting(graph.calls[number])
    }
    if lasting:
        measurements.save(lasting)
    known |= new
    per_call = [
        _at(rows, sizes, [known[tasks[n, size]] for size in sizes]) for n in range(len(graph.calls))
    ]
    return _profile(model, graph, rows, per_call)


def _profile(model: keras.Model, graph: Graph, rows: int, measured: Sequence[Measured]) -> Profile:
    trained = {id(v) for v in model.trainable_variables}
    variables = {id(v): v for v in model.weights}
    numbers = {key: number for number, key in enumerate(variables)}
    sizes = {n: _bytes(graph.spec(n), rows) for n in range(len(graph.specs))}
    kept = []
    for call, m in zip(graph.calls, measured, strict=True):
        places = {f"x{i}": n for i, n in enumerate(inputs_of(call, learning_values(graph)))}
        places |= {f"y{i}": n for i, n in enumerate(call.gives)}
        kept.append(tuple(places[name] for name in m.kept if name in places))
    return Profile(
        [m.forward for m in measured],
        [m.inputs for m in measured],
        [m.weights for m in measured],
        {n: 2 * message_s(size) for n, size in sizes.items()},
        sizes,
        kept,
        [round(m.inner_bytes) for m in measured],
        [tuple(numbers[id(v)] for v in _layer_weights(call)) for call in graph.calls],
        [
            Variable(math.prod(v.shape), _variable_bytes(v), key in trained)
            for key, v in variables.items()
        ],
        slots_of(getattr(model, "optimizer", None)),
    )


def slots_of(optimizer: Any) -> float:
    """Bytes that an optimizer keeps for each byte of weights: 2 for Adam; 0 for None."""
    if optimizer is None:
        return 0.0
    probe = keras.Variable(np.zeros((64, 64), "float32"))
    like = type(optimizer).from_config(optimizer.get_config())
    like.build([probe])
    size = _variable_bytes(probe)
    return round(sum(map(_variable_bytes, like.variables)) / size, 2)


def _at(rows: int, sizes: Sequence[int], found: Sequence[Measured]) -> Measured:
    """On the line through two measurements; where there is one, that."""
    if len(found) == 1:
        return found[0]
    (few, most), (a, b) = sizes, found

    def on_line(at_few: float, at_most: float) -> float:
        return at_most + max(0.0, at_most - at_few) * (rows - most) / (most - few)

    return Measured(
        on_line(a.forward, b.forward),
        on_line(a.inputs, b.inputs),
        on_line(a.weights, b.weights),
        on_line(a.inner_bytes, b.inner_bytes),
        b.kept,
    )


def _layer_weights(call: Call) -> Sequence[keras.Variable]:
    return call.operation.weights if isinstance(call.operation, keras.Layer) else []


def _bytes(spec: tf.TensorSpec, rows: int) -> int:
    return math.prod(with_rows(spec, rows).shape) * spec.dtype.size


def _variable_bytes(variable: keras.Variable) -> int:
    return math.prod(variable.shape) * tf.as_dtype(variable.dtype).size
