"""The profile of a model: how long each of its calls takes here, and what lies between them.

Calls are timed one by one (:mod:`.timing`). Up to `_MOST_ROWS` samples that is done with as many as
asked for; beyond, the times lie on a line through those of two sizes. What was measured of Keras's
layers and of ours is kept for the next time (:mod:`tnt_notebook.plan.measurements`).
"""

from __future__ import annotations

import functools
import math
import os
import platform
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tnt_notebook.keras.graph import layers_within
from tnt_notebook.keras.lazy_variables import is_here, stand_ins
from tnt_notebook.keras.optimizers import trained_by
from tnt_notebook.parallel.layer_graph.graph import Call, Graph, trained_values
from tnt_notebook.parallel.layer_graph.timing import inputs_of, measure, with_rows
from tnt_notebook.plan import measurements
from tnt_notebook.plan.measurements import Measured
from tnt_notebook.plan.network import ASSUMED
from tnt_notebook.plan.profile import Profile, Variable

#: More samples than the first are not measured, but extrapolated from both.
_MOST_ROWS, _FEW_ROWS = 64, 16

#: Another number makes what was measured before unknown: for when it is measured in another way.
_METHOD = 2

#: Called with how many of how many calls have been measured.
Report = Callable[[int, int], None]


def profile_of(
    model: keras.Model, graph: Graph, rows: int, report: Report | None = None
) -> Profile:
    """Times each call of a model on a micro-batch of ``rows`` samples, unless it is known; equal
    layers on equal shapes once. The model's variables are as before afterwards."""
    return profile_from(model, graph, rows, measured_of(model, graph, rows, report))


def measured_of(
    model: keras.Model, graph: Graph, rows: int, report: Report | None = None
) -> list[Measured]:
    """The same, as it was measured of each call."""
    sizes, learning = _sizes(rows), trained_values(graph)
    tasks = _tasks(graph, sizes, learning)
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
        key: new[key] for key, (number, _) in missing.items() if _is_lasting(graph.calls[number])
    }
    if lasting:
        measurements.save(lasting)
    known |= new
    return [
        _at(rows, sizes, [known[tasks[n, size]] for size in sizes]) for n in range(len(graph.calls))
    ]


def known_of(graph: Graph, rows: int) -> list[Measured | None]:
    """What :func:`profile_of` has measured of each call before, on this machine; None where it has
    not."""
    sizes = _sizes(rows)
    tasks, known = _tasks(graph, sizes, trained_values(graph)), measurements.load()
    found = []
    for number in range(len(graph.calls)):
        keys = [tasks[number, size] for size in sizes]
        there = all(key in known for key in keys)
        found.append(_at(rows, sizes, [known[key] for key in keys]) if there else None)
    return found


def kept_by(call: Call, measured: Measured, learning: Collection[int]) -> tuple[int, ...]:
    """The values that the backward of a call needs, of those that it takes and gives."""
    places = {f"x{i}": n for i, n in enumerate(inputs_of(call, learning))}
    places |= {f"y{i}": n for i, n in enumerate(call.gives)}
    return tuple(places[name] for name in measured.kept if name in places)


def _sizes(rows: int) -> list[int]:
    """On how many samples calls are timed."""
    return [rows] if rows <= _MOST_ROWS else [_FEW_ROWS, _MOST_ROWS]


def _tasks(
    graph: Graph, sizes: Sequence[int], learning: Collection[int]
) -> dict[tuple[int, int], str]:
    """By number of the call and of samples, what its measurement is known by."""
    return {
        (number, size): _key(call, graph, learning, size)
        for number, call in enumerate(graph.calls)
        for size in sizes
    }


def profile_from(
    model: keras.Model, graph: Graph, rows: int, measured: Sequence[Measured]
) -> Profile:
    """The profile of a model of which each call has been measured."""
    trained, learning = {id(v) for v in model.trainable_variables}, trained_values(graph)
    variables = {id(v): v for v in model.weights}
    numbers = {key: number for number, key in enumerate(variables)}
    sizes = {
        n: math.prod(with_rows(graph.spec(n), rows).shape) * graph.spec(n).dtype.size
        for n in range(len(graph.specs))
    }
    kept = [kept_by(call, m, learning) for call, m in zip(graph.calls, measured, strict=True)]
    return Profile(
        [m.forward for m in measured],
        [m.inputs for m in measured],
        [m.weights for m in measured],
        {n: 2 * ASSUMED.seconds(size) for n, size in sizes.items()},
        sizes,
        kept,
        [round(m.inner_bytes) for m in measured],
        [
            tuple(numbers[id(v)] for v in getattr(call.operation, "weights", []))
            for call in graph.calls
        ],
        [
            Variable(math.prod(v.shape), _variable_bytes(v), key in trained)
            for key, v in variables.items()
        ],
        slots_of(getattr(model, "optimizer", None)),
    )


def slots_of(optimizer: Any) -> float:
    """Bytes that an optimizer keeps for each byte of weights: 2 for Adam; 0 for None. Of one that
    was not built yet, and cannot be made again from its config, it is taken to be Adam's."""
    if optimizer is None:
        return 0.0
    if not optimizer.built:
        try:
            optimizer = type(optimizer).from_config(optimizer.get_config())
        except Exception:  # of people's own classes
            return 2.0
        optimizer.build([keras.Variable(np.zeros((64, 64), "float32"))])
    trained = trained_by(optimizer)
    size = sum(map(_variable_bytes, trained))
    kept = sum(_variable_bytes(v) for v in optimizer.variables if len(v.shape))
    return round(kept / max(size, 1), 2)


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


def _variable_bytes(variable: keras.Variable) -> int:
    return math.prod(variable.shape) * tf.as_dtype(variable.dtype).size


def _key(call: Call, graph: Graph, learning: Collection[int], rows: int) -> str:
    """What a measurement of a call is known by: the same for calls that take the same time."""
    values = [
        (tuple(graph.specs[n].shape[1:]), str(graph.specs[n].dtype), n in learning)
        for n in (*inputs_of(call, learning), *call.gives)
    ]
    operation = call.operation
    if not _is_lasting(call):
        what = {"only": id(operation)}
    elif isinstance(operation, keras.Layer):
        what = {k: v for k, v in operation.get_config().items() if k != "name"}
        what["trains"] = len(operation.trainable_variables)
    else:  # an operation of keras.ops
        what = {k: v for k, v in vars(operation).items() if k != "name" and k[0] != "_"}
    kind = f"{type(operation).__module__}.{type(operation).__name__}"
    return measurements.key_of(f"{_machine()} {kind} {what} {values} {call.constants} {rows}")


def _is_lasting(call: Call) -> bool:
    """Whether what a call does depends on what is in its key only: one's own code may change, or
    have no config."""
    operation = call.operation
    if not isinstance(operation, keras.Layer):
        return _is_known(operation)
    if not all(map(_is_known, layers_within(operation))):
        return False
    try:
        operation.get_config()
    except Exception:  # of a regularizer of one's own, say
        return False
    return True


def _is_known(operation: Any) -> bool:
    return type(operation).__module__.startswith(("keras.", "tnt_notebook."))


@functools.cache
def _machine() -> str:
    """What measurements depend on beside the model."""
    devices = [
        tf.config.experimental.get_device_details(gpu).get("device_name", "GPU")
        for gpu in tf.config.list_physical_devices("GPU")
    ]
    threads = tf.config.threading.get_intra_op_parallelism_threads()
    threads = threads or os.environ.get("TF_NUM_INTRAOP_THREADS")
    threads = threads or len(os.sched_getaffinity(0))
    policy = keras.config.dtype_policy().name
    return f"{_METHOD} {_cpu()} {threads} {devices} {tf.__version__} {keras.__version__} {policy}"


def _cpu() -> str:
    """The model of the processor."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    named = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(named, platform.machine())
