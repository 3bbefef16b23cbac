"""How long each layer of a model takes here, and what lies between layers: to cut it well.

Each call is traced on its own into forward, input gradient and weight gradient, as a stage is, and
each is timed. Up to `_MOST_ROWS` samples that is done with as many as asked for; beyond, the times
lie on a line through those of two sizes. What was measured of Keras's layers and of ours is kept
for the next time (:mod:`tnt_notebook.plan.measurements`).
"""

from __future__ import annotations

import functools
import math
import os
import platform
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tnt_notebook.parallel.pipeline.graph import Call, Graph
from tnt_notebook.parallel.pipeline.parts import Part, parts_of
from tnt_notebook.parallel.presence import is_here, stand_ins
from tnt_notebook.plan import measurements
from tnt_notebook.plan.measurements import Measured
from tnt_notebook.plan.profile import Profile, Variable

#: The fastest of so many runs counts, after one that warms up; fewer where one takes long, and more
#: where they are short: then whatever else the machine does may disturb several in a row.
_REPEATS, _MOST_REPEATS = 5, 50
_LONG_S, _SHORT_S = 0.2, 0.004

#: Nothing that is done takes less.
_LEAST_S = 1e-6

#: More samples than the first are not measured, but extrapolated from both.
_MOST_ROWS, _FEW_ROWS = 64, 16

#: Where sizes are unknown: steps of a sequence, pixels along a side of an image.
_UNKNOWN = 64

#: What a message between ranks costs: taken for a fast network or the memory of a node, and small
#: beside the layers that are worth a pipeline.
_LATENCY_S, _BYTES_PER_S = 30e-6, 2e9

#: Another number makes what was measured before unknown: for when it is measured in another way.
_METHOD = 2

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
    learning = _learning(graph)
    tasks = {
        (call_number, size): _key(call, graph, learning, size)
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
                new[key] = _measure(call, graph, learning, size)
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
        places = {f"x{i}": n for i, n in enumerate(_inputs(call, _learning(graph)))}
        places |= {f"y{i}": n for i, n in enumerate(call.gives)}
        kept.append(tuple(places[name] for name in m.kept if name in places))
    return Profile(
        [m.forward for m in measured],
        [m.inputs for m in measured],
        [m.weights for m in measured],
        {n: 2 * (_LATENCY_S + size / _BYTES_PER_S) for n, size in sizes.items()},
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


# Measuring --------------------------------------------------------------------------------


def _measure(call: Call, graph: Graph, learning: set[int], rows: int) -> Measured:
    takes = _inputs(call, learning)
    weights = _trained(call)
    made: list[str] = []

    def forward(tensors: list[tf.Tensor]) -> list[tf.Tensor]:
        values: dict[int, Any] = dict(zip(takes, tensors, strict=True))
        call.run(values, training=True)
        made[:] = [values[n].name for n in call.gives]
        return [values[n] for n in call.gives]

    learns = [n for n in takes if n in learning]
    floating = any(tf.as_dtype(graph.specs[n].dtype).is_floating for n in call.gives)
    parts = parts_of(
        forward,
        [graph.spec(n) for n in takes],  # of any number of rows, as of a stage: more is kept then
        [v.value for v in weights],
        "FIW" if floating and (learns or weights) else "F",
        differentiated=range(len(learns)),
    )
    if isinstance(call.operation, keras.Layer):
        call.operation._clear_losses()  # tensors of a graph that nobody runs
    pool = {f"x{i}": _sample(graph.spec(n), rows) for i, n in enumerate(takes)}
    seconds = {"I": 0.0, "W": 0.0}
    for kind, part in parts.items():
        seconds[kind], results = _time(part, pool)
        pool.update(results)
        if kind == "F":
            pool.update({f"d{n}": tf.ones_like(y) for n, y in results.items() if _is_y(n)})
    needed = {name for kind in "IW" if kind in parts for name in parts[kind].takes}
    saved = {name for name in parts["F"].gives if name in needed and not _is_y(name)}
    kept = {name for name in needed if name in pool and (_is_y(name) or _is_x(name))}
    kept |= {f"y{made.index(name)}" for name in saved if name in made}
    inner = sum(math.prod(pool[n].shape) * pool[n].dtype.size for n in saved if n not in made)
    return Measured(seconds["F"], seconds["I"], seconds["W"], inner, tuple(sorted(kept)))


def _time(part: Part, pool: dict[str, tf.Tensor]) -> tuple[float, dict[str, tf.Tensor]]:
    """Seconds that a part takes without what any call of a function takes, and what it gives."""
    if not part.gives:
        return 0.0, {}
    arguments = [pool[name] for name in part.takes]
    least, results = _seconds(part.function, arguments)
    return max(_LEAST_S, least - _call_s()), dict(zip(part.gives, results, strict=True))


def _seconds(
    function: Callable[..., list[tf.Tensor]], arguments: list[tf.Tensor]
) -> tuple[float, list[tf.Tensor]]:
    """The fastest of some runs, and the results of one."""
    results = function(*arguments)  # the first one also prepares
    least, long = math.inf, 0.0
    for run in range(_MOST_REPEATS):
        if run >= _REPEATS and long > _SHORT_S:
            break
        tf.test.experimental.sync_devices()
        begin = time.perf_counter()
        results = function(*arguments)
        tf.test.experimental.sync_devices()
        least = min(least, time.perf_counter() - begin)
        long += least
        if long > _LONG_S:
            break
    return least, list(results)


@functools.cache
def _call_s() -> float:
    """What a call takes in which next to nothing is done."""
    part = parts_of(lambda x: x, [tf.TensorSpec((1,), tf.float32)])["F"]
    return min(_seconds(part.function, [tf.zeros(1)])[0] for _ in range(10))


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


# What a measurement is known by -------------------------------------------------------------


def _key(call: Call, graph: Graph, learning: set[int], rows: int) -> str:
    """The same for calls that take the same time."""
    values = [
        (tuple(graph.specs[n].shape[1:]), str(graph.specs[n].dtype), n in learning)
        for n in (*_inputs(call, learning), *call.gives)
    ]
    operation = call.operation
    if isinstance(operation, keras.Layer):
        what = {k: v for k, v in operation.get_config().items() if k != "name"}
        what["trains"] = len(operation.trainable_variables)
    else:  # an operation of keras.ops
        what = {k: v for k, v in vars(operation).items() if k != "name" and k[0] != "_"}
    if not _is_lasting(call):
        what["only"] = id(operation)
    kind = f"{type(operation).__module__}.{type(operation).__name__}"
    return measurements.key_of(f"{_machine()} {kind} {what} {values} {call.constants} {rows}")


def _is_lasting(call: Call) -> bool:
    """Whether what a call does depends on what is in its key only: one's own code may change."""
    operation = call.operation
    layers = operation._flatten_layers() if isinstance(operation, keras.Layer) else [operation]
    return all(type(layer).__module__.startswith(("keras.", "tnt_notebook.")) for layer in layers)


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


# Values -------------------------------------------------------------------------------------


def _learning(graph: Graph) -> set[int]:
    """Values that change when weights do: gradients of the others are wanted by nobody."""
    learning: set[int] = set()
    for call in graph.calls:
        if _trained(call) or learning.intersection(call.takes):
            learning.update(call.gives)
    return {n for n in learning if tf.as_dtype(graph.specs[n].dtype).is_floating}


def _inputs(call: Call, learning: set[int]) -> list[int]:
    """The values that a call takes, each once, those first whose gradient is wanted."""
    return sorted(dict.fromkeys(call.takes), key=lambda n: n not in learning)


def _trained(call: Call) -> Sequence[keras.Variable]:
    return call.operation.trainable_variables if isinstance(call.operation, keras.Layer) else []


def _layer_weights(call: Call) -> Sequence[keras.Variable]:
    return call.operation.weights if isinstance(call.operation, keras.Layer) else []


def _with_rows(spec: tf.TensorSpec, rows: int) -> tf.TensorSpec:
    first = [rows if n is None else n for n in spec.shape[:1]]
    others = [_UNKNOWN if n is None else n for n in spec.shape[1:]]
    return tf.TensorSpec([*first, *others], spec.dtype)


def _sample(spec: tf.TensorSpec, rows: int) -> tf.Tensor:
    shape = _with_rows(spec, rows).shape
    if spec.dtype.is_floating:
        return tf.cast(tf.random.stateless_uniform(shape, (0, 1)), spec.dtype)
    return tf.zeros(shape, spec.dtype)


def _bytes(spec: tf.TensorSpec, rows: int) -> int:
    return math.prod(_with_rows(spec, rows).shape) * spec.dtype.size


def _variable_bytes(variable: keras.Variable) -> int:
    return math.prod(variable.shape) * tf.as_dtype(variable.dtype).size


def _is_x(name: str) -> bool:
    return name[0] == "x" and name[1:].isdigit()


def _is_y(name: str) -> bool:
    return name[0] == "y" and name[1:].isdigit()
