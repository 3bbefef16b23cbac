"""The profile of a model: how long each of its calls takes here, and what lies between them.

Calls are timed one by one (:mod:`.timing`), and for plans together: each takes its part of that.
Up to `_MOST_ROWS` samples that is done with as many as asked for; beyond, the times lie on a line
through those of two sizes. What was measured of Keras's layers and of ours is kept for the next
time (:mod:`tnt_notebook.plan.measurements`).
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tnt_notebook.keras.lazy_variables import is_here, stand_ins
from tnt_notebook.keras.optimizers import made_anew, trained_by
from tnt_notebook.parallel.layer_graph.graph import Call, Graph, trained_values, wiring_of
from tnt_notebook.parallel.layer_graph.measurement_key import is_lasting, key_of
from tnt_notebook.parallel.layer_graph.timing import inputs_of, measure, measure_together, with_rows
from tnt_notebook.plan import measurements
from tnt_notebook.plan.measurements import Measured
from tnt_notebook.plan.network import ASSUMED
from tnt_notebook.plan.profile import Profile, Variable

#: More samples than the first are not measured, but extrapolated from both.
_MOST_ROWS, _FEW_ROWS = 64, 16

#: In the place of the number of a call: all of them together; not where values are larger, whose
#: calls take so long that little is gained by it.
_ALL, _MOST_BYTES = -1, 1 << 30

#: Of which TensorFlow lays out so many bytes of patches at a time on CPUs, at most, to go back: see
#: conv_grad_filter_ops.cc and conv_grad_input_ops.cc.
_CONVOLUTIONS = (keras.layers.Conv1D, keras.layers.Conv2D, keras.layers.Conv3D)
_PATCHES_BYTES = 30 << 20

#: Called with how many of how many calls have been measured.
Report = Callable[[int, int], None]


def profile_of(
    model: keras.Model,
    graph: Graph,
    rows: int,
    report: Report | None = None,
    together: bool = False,
) -> Profile:
    """Times each call of a model on a micro-batch of ``rows`` samples, unless it is known; equal
    layers on equal shapes once. The model's variables are as before afterwards.

    Args:
        together: whether all of them are timed together as well, which needs another trace of the
            model: for how long a step takes, not for where to cut.
    """
    return profile_from(model, graph, rows, measured_of(model, graph, rows, report, together))


def measured_of(
    model: keras.Model,
    graph: Graph,
    rows: int,
    report: Report | None = None,
    together: bool = False,
) -> list[Measured]:
    """The same, as it was measured of each call."""
    sizes, learning = _sizes(rows), trained_values(graph)
    tasks = _tasks(model, graph, sizes, learning)
    known = measurements.load()
    missing = _missing(tasks, known, together)
    layers = sum(number != _ALL for number, _ in missing.values())
    new: dict[str, Measured] = {}
    with unchanged(model):
        for done, (key, (number, size)) in enumerate(missing.items()):
            if report is not None and layers:
                report(done, layers)
            if number == _ALL:
                new[key] = measure_together(graph, learning, size)
                continue
            call = graph.calls[number]
            with stand_ins(getattr(call.operation, "variables", [])):
                new[key] = measure(call, graph, learning, size)
    if layers and report is not None:
        report(layers, layers)
    lasting = {
        key: new[key]
        for key, (number, _) in missing.items()
        if all(map(is_lasting, graph.calls if number == _ALL else [graph.calls[number]]))
    }
    if lasting:
        measurements.save(lasting)
    return [one for one in _found(graph, rows, tasks, known | new) if one is not None]


def is_measured(model: keras.Model, graph: Graph, rows: int, together: bool = False) -> bool:
    """Whether :func:`profile_of` would measure nothing: all of it is known from earlier."""
    tasks = _tasks(model, graph, _sizes(rows), trained_values(graph))
    return not _missing(tasks, measurements.load(), together)


def _missing(
    tasks: Mapping[tuple[int, int], str], known: Mapping[str, Measured], together: bool
) -> dict[str, tuple[int, int]]:
    """What has to be measured, by what it will be known by."""
    return {
        key: task
        for task, key in tasks.items()
        if key not in known and (together or task[0] != _ALL)
    }


@contextlib.contextmanager
def unchanged(model: keras.Model) -> Iterator[None]:
    """Inside, runs of its layers change nothing that is there afterwards: neither seeds nor the
    moving averages of batch norm."""
    state = [(v, tf.identity(v.value)) for v in model.non_trainable_variables if is_here(v)]
    try:
        yield
    finally:
        for variable, value in state:
            variable.value.assign(value)


def rows_together(graph: Graph, rows: int) -> int:
    """On how many samples all calls can be run at once to be measured, at most those asked for; 0:
    on none."""
    sizes = [_MOST_BYTES // max(1, sum(_value_bytes(graph, 1).values())), rows, _MOST_ROWS]
    return min(sizes)


def known_of(model: keras.Model, graph: Graph, rows: int) -> list[Measured | None]:
    """What :func:`profile_of` has measured of each call before, on this machine; None where it has
    not."""
    tasks = _tasks(model, graph, _sizes(rows), trained_values(graph))
    return _found(graph, rows, tasks, measurements.load())


def _found(
    graph: Graph, rows: int, tasks: Mapping[tuple[int, int], str], known: Mapping[str, Measured]
) -> list[Measured | None]:
    """Of each call, what follows from what is known."""
    sizes, numbers = _sizes(rows), range(len(graph.calls))
    by_size = []
    for size in sizes:
        alone = [known.get(tasks[number, size]) for number in numbers]
        together = known.get(tasks.get((_ALL, size), ""))
        by_size.append(_parts_of(together, alone) if together else alone)
    return [
        None if None in of_call else _at(rows, sizes, of_call)
        for of_call in zip(*by_size, strict=True)
    ]


def _parts_of(together: Measured, alone: Sequence[Measured | None]) -> list[Measured | None]:
    """What calls take of the time of all, by what each took alone."""
    there = [one for one in alone if one is not None]
    if len(there) < len(alone):
        return list(alone)
    forward = sum(one.forward for one in there)
    backward = sum(one.inputs + one.weights for one in there)
    there_s = together.forward / forward if forward else 1.0
    back_s = together.inputs / backward if backward else 1.0
    again_s = together.again / forward if forward else 1.0
    return [
        replace(
            one,
            forward=there_s * one.forward,
            inputs=back_s * one.inputs,
            weights=back_s * one.weights,
            again=again_s * one.forward,
        )
        for one in there
    ]


def kept_by(call: Call, measured: Measured, learning: Collection[int]) -> tuple[int, ...]:
    """The values that the backward of a call needs, of those that it takes and gives."""
    places = {f"x{i}": n for i, n in enumerate(inputs_of(call, learning))}
    places |= {f"y{i}": n for i, n in enumerate(call.gives)}
    return tuple(places[name] for name in measured.kept if name in places)


def _sizes(rows: int) -> list[int]:
    """On how many samples calls are timed."""
    return [rows] if rows <= _MOST_ROWS else [_FEW_ROWS, _MOST_ROWS]


def _tasks(
    model: keras.Model, graph: Graph, sizes: Sequence[int], learning: Collection[int]
) -> dict[tuple[int, int], str]:
    """By number of the call and of samples, what its measurement is known by; :data:`_ALL` last."""
    tasks = {
        (number, size): key_of(call, graph, learning, size)
        for number, call in enumerate(graph.calls)
        for size in sizes
    }
    all_here = all(map(is_here, model.variables))
    for size in sizes:
        if all_here and sum(_value_bytes(graph, size).values()) <= _MOST_BYTES:
            each = [tasks[number, size] for number in range(len(graph.calls))]
            tasks[_ALL, size] = measurements.key_of(f"{each} {wiring_of(graph)}")
    return tasks


def _value_bytes(graph: Graph, rows: int) -> dict[int, int]:
    """Of each value, for so many samples."""
    return {
        n: math.prod(with_rows(graph.spec(n), rows).shape) * graph.spec(n).dtype.size
        for n in range(len(graph.specs))
    }


def profile_from(
    model: keras.Model, graph: Graph, rows: int, measured: Sequence[Measured]
) -> Profile:
    """The profile of a model of which each call has been measured."""
    trained, learning = {id(v) for v in model.trainable_variables}, trained_values(graph)
    variables = {id(v): v for v in model.weights}
    numbers = {key: number for number, key in enumerate(variables)}
    sizes = _value_bytes(graph, rows)
    kept = [kept_by(call, m, learning) for call, m in zip(graph.calls, measured, strict=True)]
    return Profile(
        [m.forward for m in measured],
        [m.inputs for m in measured],
        [m.weights for m in measured],
        [m.again for m in measured],
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
        [_working_bytes(call, sizes) for call in graph.calls],
    )


def _working_bytes(call: Call, sizes: Mapping[int, int]) -> int:
    """What the backward of a call makes beside what is kept."""
    passing = sum(sizes[n] for n in {*call.takes, *call.gives})
    convolution = call.operation
    if not isinstance(convolution, _CONVOLUTIONS) or tf.config.list_physical_devices("GPU"):
        return passing
    given = sum(sizes[n] for n in call.gives) // convolution.filters
    patches = given * math.prod(convolution.kernel.shape[:-1])
    return passing + 2 * min(_PATCHES_BYTES, patches)  # of inputs and of weights


def slots_of(optimizer: Any) -> float:
    """Bytes that an optimizer keeps for each byte of weights: 2 for Adam; 0 for None. Of one that
    was not built yet, and cannot be made again from its config, it is taken to be Adam's."""
    if optimizer is None:
        return 0.0
    if not optimizer.built:
        optimizer = made_anew(optimizer)
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
        on_line(a.again, b.again),
        on_line(a.inner_bytes, b.inner_bytes),
        b.kept,
    )


def _variable_bytes(variable: keras.Variable) -> int:
    return math.prod(variable.shape) * tf.as_dtype(variable.dtype).size
