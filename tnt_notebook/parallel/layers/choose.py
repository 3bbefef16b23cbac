"""The layouts of a graph that cost least.

Calls are gone through in order. What has been decided counts only by the layouts of values that
later calls take, so of all decisions that leave the same ones the cheapest is kept: the result is
exact (dynamic programming over the frontier of the graph), unless there are more than
:data:`MOST_STATES` such states; then the cheapest of them go on. With a limit of memory those are
kept of which no other one needs less time and less memory.
"""

from __future__ import annotations

import itertools
import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tnt_notebook.errors import MeshError
from tnt_notebook.parallel.layer_graph.graph import Graph
from tnt_notebook.parallel.layers.costs import CallCost, Costs, Estimate, Taken
from tnt_notebook.parallel.layers.layout import WHOLE, Layout
from tnt_notebook.parallel.layers.layout_map import ByLayoutMap, Wanted
from tnt_notebook.parallel.layers.program import (
    Program,
    Ways,
    WeightLayout,
    fit_together,
    given_by,
    layer_call_of,
    weight_layouts,
    weights_of,
)
from tnt_notebook.parallel.layers.rule import LayerCall, ways_of
from tnt_notebook.plan.mesh import Mesh
from tnt_notebook.sizes import size as in_words

MOST_STATES = 512


#: How many of them are kept for their memory, where that is limited.
_SMALLEST = 64
#: Layers that are named where nothing fits.
_NAMED = 3


def chosen(
    graph: Graph,
    mesh: Mesh,
    samples: int,
    costs: Costs | None = None,
    layouts: Wanted | None = None,
    memory: float = math.inf,
) -> Program:
    """The cheapest layouts.

    Args:
        samples: of a batch, on each replica.
        layouts: those that some layers are to have.
        memory: bytes that a rank may need.

    Raises:
        MeshError: there is no such axis or layer, a layer cannot be divided so, or no layouts fit
            into the memory.
    """
    check(layouts or {}, graph, mesh)
    asked = layouts.outputs(graph) if isinstance(layouts, ByLayoutMap) else {}
    estimate = Estimate(graph, mesh, samples, costs or Costs(), asked)
    choice = _Choice(estimate, layouts or {})
    best = choice.best(_seconds, memory)
    if best is None:
        smallest = choice.best(_bytes)
        assert smallest is not None  # without a limit there is always one
        program = Program(graph, smallest.ways, asked)
        if smallest.bytes > memory:
            raise MeshError(_too_large(program, estimate, smallest.bytes, memory))
        return program
    return Program(graph, best.ways, asked)


def cost(program: Program, mesh: Mesh, samples: int, costs: Costs | None = None) -> float:
    """Seconds that a training step takes by this model, on each rank."""
    estimate = Estimate(program.graph, mesh, samples, costs or Costs(), program.asked)
    return sum(spent.seconds for spent in spent_on(program, estimate))


def spent_on(
    program: Program, estimate: Estimate, inputs: Mapping[int, Layout] | None = None
) -> list[CallCost]:
    """What each call takes, and, first and last, what inputs and outputs of the model do.

    Args:
        inputs: the layouts of those that are given in blocks.
    """
    graph, inputs = program.graph, inputs or {}
    layouts: dict[int, Layout] = {value: inputs.get(value, WHOLE) for value in graph.inputs}
    known, called = set[Taken](), set[int]()
    spent = [estimate.begin(inputs)]
    for number, (call, ways) in enumerate(zip(program.layer_calls, program.ways, strict=True)):
        is_first = id(call.layer) not in called
        spent.append(estimate.call(number, call, ways, layouts, known, is_first))
        called.add(id(call.layer))
        layouts |= given_by(call, ways, estimate.asked)
    return [*spent, estimate.end(layouts, known)]


def _too_large(program: Program, estimate: Estimate, needed: int, memory: float) -> str:
    _, *costs, _ = spent_on(program, estimate)
    largest = sorted(zip(program.layer_calls, costs, strict=True), key=lambda pair: -pair[1].bytes)
    named = ", ".join(
        f"{layer_call.call.name} ({in_words(spent.weights)} for its weights, "
        f"{in_words(spent.activations)} for what it computes)"
        for layer_call, spent in largest[:_NAMED]
    )
    return (
        f"No layouts on the mesh {estimate.mesh} fit into {in_words(round(memory))} a rank for "
        f"{estimate.samples} samples on each replica: the ones that need least take "
        f"{in_words(needed)}, most of it {named}. Take a smaller batch, more ranks along an axis "
        "that divides these layers, or a higher limit."
    )


def check(layouts: Wanted, graph: Graph, mesh: Mesh) -> None:
    """Raises MeshError if layouts are of axes or layers that are not there."""
    if isinstance(layouts, ByLayoutMap):
        layouts.check(graph)
        return
    for pattern, split in layouts.items():
        for axis, _ in split.ways:
            if axis not in mesh.inner:
                axes = ", ".join(mesh.inner) or "none but data"
                raise MeshError(
                    f"{pattern!r}: {split}: the mesh {mesh} has no axis {axis!r} along which "
                    f"layers can be divided; it has {axes}."
                )
        if not any(re.fullmatch(pattern, call.name) for call in graph.calls):
            names = ", ".join(dict.fromkeys(call.name for call in graph.calls))
            raise MeshError(f"No layer has a name like {pattern!r}: the model has {names}.")


def options(layer_call: LayerCall, mesh: Mesh, layouts: Wanted | None = None) -> list[Ways]:
    """All that can be done with a call: a way, or none, along each inner axis.

    Raises:
        MeshError: none is as the layouts want it.
    """
    every = list(_options(layer_call, mesh))
    if isinstance(layouts, ByLayoutMap):
        return layouts.fitting(layer_call, every)
    for pattern, split in (layouts or {}).items():
        if re.fullmatch(pattern, layer_call.call.name):
            wanted = dict(split.ways)
            fitting = [
                ways
                for ways in every
                if all(axis in ways and ways[axis].name == way for axis, way in wanted.items())
            ]
            if not fitting:
                names = {
                    axis: dict.fromkeys(w[axis].name for w in every if axis in w) for axis in wanted
                }
                found = "; ".join(
                    f"{axis}: {', '.join(ways)}" for axis, ways in names.items() if ways
                )
                raise MeshError(
                    f"The layer {layer_call.call.name} cannot be divided by {split} on the mesh "
                    f"{mesh}. It can be along {found or 'no axis'}."
                )
            every = fitting
    return every


def _options(layer_call: LayerCall, mesh: Mesh) -> Iterator[Ways]:
    each = [
        [(axis, None), *((axis, way) for way in ways_of(layer_call, axis, mesh.along(axis)))]
        for axis in mesh.inner
        if mesh.along(axis) > 1
    ]
    for combination in itertools.product(*each):
        ways = {axis: way for axis, way in combination if way is not None}
        if fit_together(layer_call, ways):
            yield ways


@dataclass(frozen=True)
class _State:
    """Decisions about the first calls.

    Attributes:
        layouts: of the values that later calls take.
        weights: of those of several calls, the layouts by id.
        known: conversions that are made.
    """

    seconds: float
    bytes: int
    ways: tuple[Ways, ...]
    layouts: dict[int, Layout]
    weights: dict[int, WeightLayout]
    known: set[Taken]

    @property
    def leaves(self) -> Any:
        """All that later decisions depend on."""
        weights = frozenset(self.weights.items())
        return frozenset(self.layouts.items()), weights, frozenset(self.known)


#: What is to be small.
_Aim = Callable[[_State], float]


def _seconds(state: _State) -> float:
    return state.seconds


def _bytes(state: _State) -> float:
    return state.bytes


class _Choice:
    def __init__(self, estimate: Estimate, layouts: Wanted) -> None:
        self._estimate, self._layouts = estimate, layouts
        self._graph = graph = estimate.graph
        self._last = {v: i for i, call in enumerate(graph.calls) for v in call.takes}
        self._last |= dict.fromkeys(graph.outputs, len(graph.calls))
        first = {id(call.operation): n for n, call in reversed([*enumerate(graph.calls)])}
        self._first_calls = frozenset(first.values())
        users = Counter(key for call in graph.calls for key in {id(v) for v in weights_of(call)})
        self._again = {key for key, count in users.items() if count > 1}

    def best(self, aim: _Aim, memory: float = math.inf) -> _State | None:
        """The decisions that keep to the memory and have least of something; None: there are none,
        or none among those that were gone through."""
        begin = self._estimate.begin()
        states = [_State(0.0, begin.bytes, (), dict.fromkeys(self._graph.inputs, WHOLE), {}, set())]
        for number, (layer_call, choices) in enumerate(self._choices()):
            found: dict[Any, list[_State]] = {}
            for state, ways in itertools.product(states, choices):
                after = self._after(state, layer_call, ways, number)
                if after is not None and after.bytes <= memory:
                    others = found.setdefault(after.leaves, [])
                    others[:] = _undominated(others, after, aim, math.isfinite(memory))
            if not found and math.isinf(memory):
                raise self._at_odds(layer_call)
            states = _first(itertools.chain(*found.values()), aim, math.isfinite(memory))
        ends = [self._ended(state) for state in states]
        return min((state for state in ends if state.bytes <= memory), key=aim, default=None)

    def _choices(self) -> list[tuple[LayerCall, list[Ways]]]:
        """What can be done with each call, where weights of several can have the same layout.
        Raises MeshError where there is none that suits all."""
        calls = [layer_call_of(self._graph, call) for call in self._graph.calls]
        every = [(call, options(call, self._estimate.mesh, self._layouts)) for call in calls]
        suits: dict[int, set[WeightLayout]] = {}
        for layer_call, choices in every:
            for key in self._again & {id(v) for v in weights_of(layer_call.call)}:
                possible = {weight_layouts(layer_call, ways)[key] for ways in choices}
                suits[key] = suits.get(key, possible) & possible
                if not suits[key]:
                    raise self._at_odds(layer_call)

        def suited(layer_call: LayerCall, ways: Ways) -> bool:
            own = weight_layouts(layer_call, ways)
            return all(own[key] in suits[key] for key in self._again & own.keys())

        return [(call, [w for w in choices if suited(call, w)]) for call, choices in every]

    def _at_odds(self, layer_call: LayerCall) -> MeshError:
        own = {id(v) for v in weights_of(layer_call.call)}
        calls = [c.name for c in self._graph.calls if own & {id(v) for v in weights_of(c)}]
        return MeshError(
            f"The layouts do not go together: {layer_call.call.name} shares weights with other "
            "layers, and cannot divide them as those have to. Leave out the layouts of these: "
            f"{', '.join(dict.fromkeys(calls))}."
        )

    def _after(self, state: _State, call: LayerCall, ways: Ways, number: int) -> _State | None:
        cut = weight_layouts(call, ways).items() if self._again else ()
        own = {key: layout for key, layout in cut if key in self._again}
        if any(state.weights.get(key, layout) != layout for key, layout in own.items()):
            return None  # the same weights, in other layouts
        weights = {**state.weights, **own}
        known = set(state.known)
        is_first = number in self._first_calls
        spent = self._estimate.call(number, call, ways, state.layouts, known, is_first)
        made = {**state.layouts, **given_by(call, ways, self._estimate.asked)}
        layouts = {v: w for v, w in made.items() if self._last.get(v, -1) > number}
        known = {(v, input_layout) for v, input_layout in known if v in layouts}
        return _State(
            state.seconds + spent.seconds, state.bytes + spent.bytes, (*state.ways, ways),
            layouts, weights, known,
        )  # fmt: skip

    def _ended(self, state: _State) -> _State:
        spent = self._estimate.end(state.layouts, set(state.known))
        return replace(
            state, seconds=state.seconds + spent.seconds, bytes=state.bytes + spent.bytes
        )


def _undominated(
    others: Sequence[_State], new: _State, aim: _Aim, is_limited: bool
) -> list[_State]:
    """Of decisions that leave the same ones, those that may still turn out to be the best."""
    if not is_limited:
        return [min((*others, new), key=aim)]
    if any(one.seconds <= new.seconds and one.bytes <= new.bytes for one in others):
        return [*others]
    kept = [one for one in others if one.seconds < new.seconds or one.bytes < new.bytes]
    return [*kept, new]


def _first(states: Iterable[_State], aim: _Aim, is_limited: bool) -> list[_State]:
    """Those that go on."""
    in_order = sorted(states, key=aim)
    if len(in_order) <= MOST_STATES or not is_limited:
        return in_order[:MOST_STATES]
    rest = sorted(in_order[MOST_STATES - _SMALLEST :], key=_bytes)
    return [*in_order[: MOST_STATES - _SMALLEST], *rest[:_SMALLEST]]
