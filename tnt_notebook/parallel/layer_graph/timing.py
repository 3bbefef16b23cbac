"""How long one call of a model takes: its forward, input gradient and weight gradient, each alone;
and how long all of them take together.

A call is traced as a stage is, so what its backward keeps is what it keeps in a stage.
"""

from __future__ import annotations

import functools
import math
import time
from collections.abc import Callable, Collection, Sequence
from typing import Any

import keras
import tensorflow as tf

from tnt_notebook.keras.losses import forget_losses
from tnt_notebook.parallel.layer_graph.graph import Call, Graph
from tnt_notebook.parallel.layer_graph.packing import packed, unpacked
from tnt_notebook.parallel.layer_graph.parts import Part, is_differentiable, parts_of
from tnt_notebook.plan.measurements import Measured

#: The fastest of so many runs counts, after one that warms up; fewer where one takes long, and more
#: where they are short: then whatever else the machine does may disturb several in a row.
_REPEATS, _MOST_REPEATS = 5, 50
_LONG_S, _SHORT_S = 0.2, 0.004
#: That all calls together run at least: of their time each has a part.
_TOGETHER_S = 0.5

#: Nothing that is done takes less.
_LEAST_S = 1e-6

#: Where sizes are unknown: steps of a sequence, pixels along a side of an image.
_UNKNOWN = 64


def measure_together(graph: Graph, learning: Collection[int], rows: int) -> Measured:
    """Times all calls of a graph at once, of the whole backward (as ``inputs``): TensorFlow begins
    some ops while others run, and needs less for those of one function than for those of many."""
    takes, seconds = [*graph.inputs], {"B": 0.0}
    weights = {id(v): v.value for call in graph.calls for v in trained_by(call)}

    def forward(tensors: list[tf.Tensor]) -> list[tf.Tensor]:
        values: dict[int, Any] = {
            n: unpacked(tensor, graph.spec(n)) for n, tensor in zip(takes, tensors, strict=True)
        }
        for call in graph.calls:
            call.run(values, training=True)
        return [packed(values[n]) for n in graph.outputs]

    specs = [graph.packed_spec(n) for n in takes]
    kinds = "F" if set(learning).isdisjoint(graph.outputs) else "FB"
    parts = parts_of(forward, specs, [*weights.values()], kinds, differentiated=())
    for call in graph.calls:
        if isinstance(call.operation, keras.Layer):
            forget_losses(call.operation)
    pool = {f"x{i}": sample(graph.spec(n), rows, n in graph.sparse) for i, n in enumerate(takes)}
    for kind, part in parts.items():
        seconds[kind], results = _time(part, pool, _TOGETHER_S)
        pool.update(results)
        slopes = {n: y for n, y in results.items() if _is_y(n) and is_differentiable(y.dtype)}
        pool.update({f"d{n}": tf.ones_like(y) for n, y in slopes.items()})
    return Measured(seconds["F"], seconds["B"], 0.0, 0.0, ())


def measure(call: Call, graph: Graph, learning: Collection[int], rows: int) -> Measured:
    """Times a call on so many samples; ``learning``: see :func:`.graph.trained_values`."""
    takes = inputs_of(call, learning)
    weights = trained_by(call)
    made: list[str] = []

    def forward(tensors: list[tf.Tensor]) -> list[tf.Tensor]:
        values: dict[int, Any] = {
            n: unpacked(tensor, graph.spec(n)) for n, tensor in zip(takes, tensors, strict=True)
        }
        call.run(values, training=True)
        given = [packed(values[n]) for n in call.gives]
        made[:] = [tensor.name for tensor in given]
        return given

    learns = [n for n in takes if n in learning]
    gives_gradients = any(is_differentiable(graph.specs[n].dtype) for n in call.gives)
    parts = parts_of(
        forward,
        [
            graph.packed_spec(n) for n in takes
        ],  # of any number of rows, as of a stage: more is kept then
        [v.value for v in weights],
        "FIW" if gives_gradients and (learns or weights) else "F",
        differentiated=range(len(learns)),
    )
    if isinstance(call.operation, keras.Layer):
        forget_losses(call.operation)  # tensors of a graph that nobody runs
    pool = {f"x{i}": sample(graph.spec(n), rows, n in graph.sparse) for i, n in enumerate(takes)}
    seconds = {"I": 0.0, "W": 0.0}
    for kind, part in parts.items():
        seconds[kind], results = _time(part, pool)
        pool.update(results)
        if kind == "F":
            slopes = {n: y for n, y in results.items() if _is_y(n) and is_differentiable(y.dtype)}
            pool.update({f"d{n}": tf.ones_like(y) for n, y in slopes.items()})
    needed = {name for kind in "IW" if kind in parts for name in parts[kind].takes}
    saved = {name for name in parts["F"].gives if name in needed and not _is_y(name)}
    kept = {name for name in needed if name in pool and (_is_y(name) or _is_x(name))}
    kept |= {f"y{made.index(name)}" for name in saved if name in made}
    inner = sum(math.prod(pool[n].shape) * pool[n].dtype.size for n in saved if n not in made)
    return Measured(seconds["F"], seconds["I"], seconds["W"], inner, tuple(sorted(kept)))


def _time(
    part: Part, pool: dict[str, tf.Tensor], least_s: float = _SHORT_S
) -> tuple[float, dict[str, tf.Tensor]]:
    """Seconds that a part takes without what any call of a function takes, and what it gives.

    Args:
        least_s: seconds that it runs at least, again and again.
    """
    if not part.gives:
        return 0.0, {}
    arguments = [pool[name] for name in part.takes]
    fastest, results = _seconds(part.function, arguments, least_s)
    return max(_LEAST_S, fastest - _call_s()), dict(zip(part.gives, results, strict=True))


def _seconds(
    function: Callable[..., list[tf.Tensor]], arguments: list[tf.Tensor], least_s: float = _SHORT_S
) -> tuple[float, list[tf.Tensor]]:
    """The fastest of some runs, and the results of one."""
    results = function(*arguments)  # the first one also prepares
    fastest, long = math.inf, 0.0
    for run in range(_MOST_REPEATS):
        if run >= _REPEATS and long > least_s:
            break
        tf.test.experimental.sync_devices()
        begin = time.perf_counter()
        results = function(*arguments)
        tf.test.experimental.sync_devices()
        fastest = min(fastest, time.perf_counter() - begin)
        long += fastest
        if long > max(least_s, _LONG_S):
            break
    return fastest, list(results)


@functools.cache
def _call_s() -> float:
    """What a call takes in which next to nothing is done."""
    part = parts_of(lambda x: x, [tf.TensorSpec((1,), tf.float32)])["F"]
    return min(_seconds(part.function, [tf.zeros(1)])[0] for _ in range(10))


def inputs_of(call: Call, learning: Collection[int]) -> list[int]:
    """The values that a call takes, each once, those first whose gradient is wanted."""
    return sorted(dict.fromkeys(call.takes), key=lambda n: n not in learning)


def trained_by(call: Call) -> Sequence[keras.Variable]:
    return call.operation.trainable_variables if isinstance(call.operation, keras.Layer) else []


def with_rows(spec: tf.TensorSpec, rows: int) -> tf.TensorSpec:
    first = [rows if n is None else n for n in spec.shape[:1]]
    others = [_UNKNOWN if n is None else n for n in spec.shape[1:]]
    return tf.TensorSpec([*first, *others], spec.dtype)


def sample(spec: tf.TensorSpec, rows: int, is_sparse: bool = False) -> tf.Tensor:
    shape = with_rows(spec, rows).shape
    if is_sparse:  # one number in each row
        places = tf.pad(tf.range(rows, dtype=tf.int64)[:, None], [[0, 0], [0, len(shape) - 1]])
        return packed(tf.SparseTensor(places, tf.ones(rows, spec.dtype), shape))
    if spec.dtype.is_floating:
        return tf.cast(tf.random.stateless_uniform(shape, (0, 1)), spec.dtype)
    return tf.zeros(shape, spec.dtype)


def _is_x(name: str) -> bool:
    return name[0] == "x" and name[1:].isdigit()


def _is_y(name: str) -> bool:
    return name[0] == "y" and name[1:].isdigit()
