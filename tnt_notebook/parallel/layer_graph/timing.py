"""How long one call of a model takes: its forward, input gradient and weight gradient, each alone;
and how long all of them take together.

A call is traced as a stage is, so what its backward keeps is what it keeps in a stage.
"""

from __future__ import annotations

import functools
import math
import time
from collections.abc import Callable, Collection, Sequence
from statistics import median
from typing import Any

import keras
import tensorflow as tf

from tnt_notebook.keras.losses import forget_losses
from tnt_notebook.keras.traced import elements_of_list
from tnt_notebook.parallel.layer_graph.graph import Call, Graph
from tnt_notebook.parallel.layer_graph.packing import packed, unpacked
from tnt_notebook.parallel.layer_graph.parts import Joint, Part, is_differentiable, parts_of
from tnt_notebook.plan.measurements import Measured

#: The fastest of so many runs counts, after one that warms up; fewer where one takes long, and more
#: where they are short: then whatever else the machine does may disturb several in a row.
_REPEATS, _MOST_REPEATS = 5, 50
_LONG_S, _SHORT_S = 0.2, 0.004
#: For a median, how many times as long as is asked for runs may take, until there are enough.
_MOST_TIMES = 4

#: How often runs of all calls are timed in turn, at most; seconds of each, and of all rounds after
#: which there is no other.
_ROUNDS, _ROUND_S, _ROUNDS_S = 3, 0.15, 2.0

#: Nothing that is done takes less.
_LEAST_S = 1e-6

#: Where sizes are unknown: steps of a sequence, pixels along a side of an image.
_UNKNOWN = 64


def measure_together(graph: Graph, learning: Collection[int], rows: int) -> Measured:
    """Times all calls of a graph at once, of the whole backward (as ``inputs``): TensorFlow begins
    some ops while others run, and needs less for those of one function than for those of many."""
    run = whole_run(graph, learning, rows)
    runs = [functools.partial(run, *how) for how in (("F",), ("FB",), ("FB", True))]
    # In turn: a machine may be faster in one second than in the next.
    rounds: list[list[float]] = []
    begun = time.perf_counter()
    while len(rounds) < _ROUNDS and (not rounds or time.perf_counter() - begun < _ROUNDS_S):
        rounds.append([median_s(one, _ROUND_S) for one in runs])
    there = max(_LEAST_S, median(f for f, _, _ in rounds) - _call_s())
    back = max(_LEAST_S, median(both - f for f, both, _ in rounds))
    again = median(longer - both for _, both, longer in rounds)
    return Measured(there, back, 0.0, min(max(0.0, again), there), 0.0, ())


def whole_run(graph: Graph, learning: Collection[int], rows: int) -> Callable[..., list[tf.Tensor]]:
    """What runs all calls of a graph once, as in a step: of ``"F"`` forward, of ``"FB"`` backward,
    too, in one function, on request with recomputation. It gives back what a step wants, outputs
    and gradients: TensorFlow leaves out of a function what nobody wants. Traced when it is first
    called."""
    takes = [*graph.inputs]
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
    joint = Joint(forward, specs, [*weights.values()], kinds != "F", differentiated=())
    for call in graph.calls:
        if isinstance(call.operation, keras.Layer):
            forget_losses(call.operation)
    samples = [sample(graph.spec(n), rows, n in graph.sparse) for n in takes]

    cut = functools.cache(joint.cut)  # forward alone is of the same parts as with backward

    @tf.function(autograph=False)
    def function(wants: str, recompute: bool, *given: tf.Tensor) -> list[tf.Tensor]:
        pool = {f"x{i}": tensor for i, tensor in enumerate(given)}
        wanted: list[tf.Tensor] = []
        before: list[tf.Tensor] = []  # as actions of a step: a forward done again waits for this
        for kind, part in cut(kinds, recompute).items():
            if kind in wants and part.gives:
                with tf.control_dependencies(before):
                    before = part.function(*(pool[name] for name in part.takes))
                named = dict(zip(part.gives, before, strict=True))
                wanted += [one for name, one in named.items() if kind != "F" or _is_y(name)]
                pool.update(_with_slopes(named))
        return wanted

    def run(wants: str, recompute: bool = False) -> list[tf.Tensor]:
        cut(kinds, recompute)  # not while something else is traced
        result: list[tf.Tensor] = function(wants, recompute, *samples)
        return result

    return run


def _with_slopes(results: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
    """What a part has given, and gradients of what it gives."""
    slopes = {n: y for n, y in results.items() if _is_y(n) and is_differentiable(y.dtype)}
    return {**results, **{f"d{n}": tf.ones_like(y) for n, y in slopes.items()}}


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
    kinds = "FIW" if gives_gradients and (learns or weights) else "F"
    # Of any number of rows, as of a stage: more is kept then.
    specs = [graph.packed_spec(n) for n in takes]
    joint = Joint(forward, specs, [v.value for v in weights], kinds != "F", range(len(learns)))
    parts = joint.cut(kinds)
    if isinstance(call.operation, keras.Layer):
        forget_losses(call.operation)  # tensors of a graph that nobody runs
    pool = {f"x{i}": sample(graph.spec(n), rows, n in graph.sparse) for i, n in enumerate(takes)}
    seconds = {"I": 0.0, "W": 0.0}
    for kind, part in parts.items():
        seconds[kind], results = _time(part, pool)
        pool.update(_with_slopes(results) if kind == "F" else results)
    needed = {name for kind in "IW" if kind in parts for name in parts[kind].takes}
    saved = {name for name in parts["F"].gives if name in needed and not _is_y(name)}
    kept = {name for name in needed if name in pool and (_is_y(name) or _is_x(name))}
    kept |= {f"y{made.index(name)}" for name in saved if name in made}
    traced = joint.graph.get_tensor_by_name
    inner = sum(_bytes(pool[name], traced(name), rows) for name in saved if name not in made)
    there = seconds["F"]
    return Measured(there, seconds["I"], seconds["W"], there, inner, tuple(sorted(kept)))


def _bytes(value: tf.Tensor, traced: tf.Tensor, rows: int) -> int:
    """Of a value. A loop keeps lists of what its turns have made: of them, what depends on the
    samples; to weights they only refer.

    Args:
        traced: the same in the graph, of any number of samples.
    """
    if value.dtype != tf.variant:
        return math.prod(value.shape) * int(value.dtype.size)
    bytes = 0
    for dtype, axes in elements_of_list(traced):
        if -1 in axes:
            turns = int(tf.raw_ops.TensorListLength(input_handle=value))
            element = math.prod(rows if axis == -1 else axis for axis in axes)
            bytes += turns * element * int(dtype.size)
    return bytes


def _time(part: Part, pool: dict[str, tf.Tensor]) -> tuple[float, dict[str, tf.Tensor]]:
    """Seconds that a part takes without what any call of a function takes, and what it gives."""
    if not part.gives:
        return 0.0, {}
    arguments = [pool[name] for name in part.takes]
    results = part.function(*arguments)  # the first one also prepares
    fastest = min(times_of(lambda: part.function(*arguments), _are_enough))
    return max(_LEAST_S, fastest - _call_s()), dict(zip(part.gives, results, strict=True))


def times_of(run: Callable[[], Any], enough: Callable[[list[float]], bool]) -> list[float]:
    """Seconds of each of so many runs that there are enough."""
    times: list[float] = []
    while not enough(times):
        tf.test.experimental.sync_devices()
        begin = time.perf_counter()
        run()
        tf.test.experimental.sync_devices()
        times.append(time.perf_counter() - begin)
    return times


def _are_enough(times: Sequence[float]) -> bool:
    """For the fastest of them."""
    runs = len(times)
    if not runs or runs == _MOST_REPEATS:
        return runs > 0
    long = runs * min(times)
    return long > _LONG_S or (runs >= _REPEATS and long > _SHORT_S)


def median_s(run: Callable[[], Any], least_s: float = 0.5) -> float:
    """Seconds of the median run after the first, of as many as take so long; of few, where each
    takes longer."""
    run()  # the first one also prepares
    return median(times_of(run, lambda times: _are_many(times, least_s)))


def _are_many(times: Sequence[float], least_s: float) -> bool:
    """For the median of them."""
    long = sum(times)
    return long > _MOST_TIMES * least_s or (len(times) >= _REPEATS and long > least_s)


@functools.cache
def _call_s() -> float:
    """What a call takes in which next to nothing is done."""
    part, x = parts_of(lambda x: x, [tf.TensorSpec((1,), tf.float32)])["F"], tf.zeros(1)
    part.function(x)
    return min(min(times_of(lambda: part.function(x), _are_enough)) for _ in range(10))


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
