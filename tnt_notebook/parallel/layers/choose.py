"""The layouts of a graph that cost least.

Calls are gone through in order. What has been decided counts only by the layouts of values that
later calls take, so of all decisions that leave the same ones the cheapest is kept: the result is
exact (dynamic programming over the frontier of the graph), unless there are more than
:data:`MOST_STATES` such states; then the cheapest of them go on.
"""

from __future__ import annotations

import itertools
import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from tnt_notebook.errors import MeshError
from tnt_notebook.parallel.layers.layout import WHOLE, Demand, Layout
from tnt_notebook.parallel.layers.program import (
    Program,
    Ways,
    WeightLayout,
    demand_of,
    fit_together,
    layout_of,
    shape_of,
    site_of,
    weight_layouts,
    weights_of,
)
from tnt_notebook.parallel.layers.rule import Shape, Site, ways_of
from tnt_notebook.parallel.pipeline.graph import Graph
from tnt_notebook.plan.mesh import Layouts, Mesh

MOST_STATES = 512


@dataclass(frozen=True)
class Costs:
    """What a rank can do.

    Attributes:
        flops: floating-point operations in a second.
        bandwidth: bytes that it sends in a second.
        memory: bytes that a layer reads or writes in a second.
        latency: seconds that an exchange takes at least.
    """

    flops: float = 2e10
    bandwidth: float = 2e9
    memory: float = 5e9
    latency: float = 3e-5


def chosen(
    graph: Graph,
    mesh: Mesh,
    samples: int,
    costs: Costs | None = None,
    layouts: Layouts | None = None,
) -> Program:
    """The cheapest layouts.

    Args:
        samples: of a batch, on each replica.
        layouts: those that some layers are to have.

    Raises:
        MeshError: there is no such axis or layer, or a layer cannot be divided so.
    """
    check(layouts or {}, graph, mesh)
    choice = _Choice(graph, mesh, samples, costs or Costs(), layouts or {})
    return Program(graph, choice.best())


def cost(program: Program, mesh: Mesh, samples: int, costs: Costs | None = None) -> float:
    """Seconds that a training step takes by this model, on each rank."""
    choice = _Choice(program.graph, mesh, samples, costs or Costs(), {})
    layouts: dict[int, Layout] = dict.fromkeys(program.graph.inputs, WHOLE)
    seconds, known = 0.0, set[Any]()
    for site, ways in zip(program.sites, program.ways, strict=True):
        seconds += choice.seconds(site, ways, layouts, known)
        layouts.update((v, layout_of(ways, i)) for i, v in enumerate(site.call.gives))
    return seconds + choice.end(layouts, known)


def check(layouts: Layouts, graph: Graph, mesh: Mesh) -> None:
    """Raises MeshError if layouts are of axes or layers that are not there."""
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


def options(site: Site, mesh: Mesh, layouts: Layouts | None = None) -> list[Ways]:
    """All that can be done with a call: a way, or none, along each inner axis.

    Raises:
        MeshError: none is as the layouts want it.
    """
    every = list(_options(site, mesh))
    for pattern, split in (layouts or {}).items():
        if re.fullmatch(pattern, site.call.name):
            wanted = dict(split.ways)
            fitting = [
                ways
                for ways in every
                if all(axis in ways and ways[axis].name == way for axis, way in wanted.items())
            ]
            if not fitting:
                found = "; ".join(
                    f"{axis}: {', '.join(dict.fromkeys(w[axis].name for w in every if axis in w))}"
                    for axis in wanted
                )
                raise MeshError(
                    f"The layer {site.call.name} cannot be divided by {split} on the mesh {mesh}. "
                    f"It can be along {found.rstrip(': ') or 'no axis'}."
                )
            every = fitting
    return every


def _options(site: Site, mesh: Mesh) -> Iterator[Ways]:
    each = [
        [(axis, None), *((axis, way) for way in ways_of(site, axis, mesh.along(axis)))]
        for axis in mesh.inner
        if mesh.along(axis) > 1
    ]
    for combination in itertools.product(*each):
        ways = {axis: way for axis, way in combination if way is not None}
        if fit_together(site, ways):
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
    ways: tuple[Ways, ...]
    layouts: dict[int, Layout]
    weights: dict[int, WeightLayout]
    known: set[tuple[int, Demand]]

    @property
    def leaves(self) -> Any:
        """All that later decisions depend on."""
        weights = frozenset(self.weights.items())
        return frozenset(self.layouts.items()), weights, frozenset(self.known)


class _Choice:
    def __init__(
        self, graph: Graph, mesh: Mesh, samples: int, costs: Costs, layouts: Layouts
    ) -> None:
        self._layouts = layouts
        self._graph, self._mesh, self._samples, self._costs = graph, mesh, samples, costs
        self._last = {v: i for i, call in enumerate(graph.calls) for v in call.takes}
        self._last |= dict.fromkeys(graph.outputs, len(graph.calls))
        users = Counter(key for call in graph.calls for key in {id(v) for v in weights_of(call)})
        self._again = {key for key, count in users.items() if count > 1}

    def best(self) -> Sequence[Ways]:
        first = _State(0.0, (), dict.fromkeys(self._graph.inputs, WHOLE), {}, set())
        states = [first]
        for number, (site, choices) in enumerate(self._choices()):
            found: dict[Any, _State] = {}
            for state, ways in itertools.product(states, choices):
                after = self._after(state, site, ways, number)
                if after is None:
                    continue
                key = after.leaves
                if key not in found or after.seconds < found[key].seconds:
                    found[key] = after
            if not found:
                raise self._at_odds(site)
            states = sorted(found.values(), key=lambda state: state.seconds)[:MOST_STATES]
        ends = [(s.seconds + self.end(s.layouts, set(s.known)), s) for s in states]
        return min(ends, key=lambda pair: pair[0])[1].ways

    def _choices(self) -> list[tuple[Site, list[Ways]]]:
        """What can be done with each call, where weights of several can have the same layout.
        Raises MeshError where there is none that suits all."""
        sites = [site_of(self._graph, call) for call in self._graph.calls]
        every = [(site, options(site, self._mesh, self._layouts)) for site in sites]
        suits: dict[int, set[WeightLayout]] = {}
        for site, choices in every:
            for key in self._again & {id(v) for v in weights_of(site.call)}:
                possible = {weight_layouts(site, ways)[key] for ways in choices}
                suits[key] = suits.get(key, possible) & possible
                if not suits[key]:
                    raise self._at_odds(site)

        def suited(site: Site, ways: Ways) -> bool:
            own = weight_layouts(site, ways)
            return all(own[key] in suits[key] for key in self._again & own.keys())

        return [(site, [w for w in choices if suited(site, w)]) for site, choices in every]

    def _at_odds(self, site: Site) -> MeshError:
        own = {id(v) for v in weights_of(site.call)}
        calls = [c.name for c in self._graph.calls if own & {id(v) for v in weights_of(c)}]
        return MeshError(
            f"The layouts do not go together: {site.call.name} has weights that other layers have, "
            "too, and cannot divide them as those are to. Leave out the layouts of these layers: "
            f"{', '.join(dict.fromkeys(calls))}."
        )

    def _after(self, state: _State, site: Site, ways: Ways, number: int) -> _State | None:
        own = {key: w for key, w in weight_layouts(site, ways).items() if key in self._again}
        if any(state.weights.get(key, layout) != layout for key, layout in own.items()):
            return None  # the same weights, in other layouts
        weights = {**state.weights, **own}
        known = set(state.known)
        seconds = state.seconds + self.seconds(site, ways, state.layouts, known)
        made = {v: layout_of(ways, i) for i, v in enumerate(site.call.gives)}
        layouts = {
            v: w for v, w in {**state.layouts, **made}.items() if self._last.get(v, -1) > number
        }
        known = {(v, demand) for v, demand in known if v in layouts}
        return _State(seconds, (*state.ways, ways), layouts, weights, known)

    # Seconds ----------------------------------------------------------------------------------

    def seconds(
        self, site: Site, ways: Ways, layouts: Mapping[int, Layout], known: set[Any]
    ) -> float:
        """Of a call, forward and backward, with the conversions of what it takes that are not
        known."""
        parts = self._mesh.along_all(ways)
        seconds = self._work(site) / parts
        for place, value in enumerate(site.call.takes):
            seconds += self._conversion(value, layouts[value], demand_of(ways, place), known)
        return seconds

    def end(self, layouts: Mapping[int, Layout], known: set[Any]) -> float:
        """To have the outputs of the model whole."""
        return sum(
            self._conversion(value, layouts[value], Demand(), known)
            for value in self._graph.outputs
        )

    def _work(self, site: Site) -> float:
        numbers = sum(self._size(shape) for shape in (*site.takes, *site.gives))
        flops = 0.0
        layer = site.layer
        for weight in getattr(layer, "trainable_variables", []):
            if len(weight.shape) > 1:
                spread = self._size(site.gives[0][:-1])
                flops += 2.0 * math.prod(weight.shape) * spread
        return 3 * (flops / self._costs.flops + 4 * numbers / self._costs.memory)

    def _size(self, shape: Shape) -> float:
        return math.prod(self._samples if n is None else n for n in shape)

    def _conversion(self, value: int, layout: Layout, demand: Demand, known: set[Any]) -> float:
        if (value, demand) in known:
            return 0.0
        known.add((value, demand))
        shape = shape_of(self._graph, value)
        bytes_ = tf.as_dtype(self._graph.specs[value].dtype).size or 4
        return self._seconds_of(shape, layout, demand, bytes_)

    def _seconds_of(self, shape: Shape, layout: Layout, demand: Demand, size: int) -> float:
        costs, mesh = self._costs, self._mesh
        exchanges, elements = 0, 0.0
        numbers = self._size(shape)
        now, wanted = layout.dims, demand.dims
        rows = dict(demand.rows)
        here = numbers / math.prod(mesh.along(axis) for axis in now)
        for axis in layout.partial:
            p = mesh.along(axis)
            exchanges += 1
            elements += here * (p - 1) / p
            if axis not in wanted:
                elements += here * (p - 1) / p
        for axis, dim in now.items():
            p = mesh.along(axis)
            if axis not in wanted:  # a gather, and back
                exchanges += 1 + (axis in demand.divides)
                elements += here * (p - 1) * (1 + (axis in demand.divides))
            elif wanted[axis] != dim:
                exchanges += 2
                elements += 2 * here * (p - 1) / p
        for axis, dim in wanted.items():
            p = mesh.along(axis)
            if axis not in now and axis not in layout.partial:  # slices; their gradient is gathered
                exchanges += 1
                elements += here * (p - 1) / p
            if dim in rows and shape[dim]:
                reach = max(e - b for b, e in rows[dim]) - -(-(shape[dim] or 1) // p)
                if reach > 0 and axis in now:
                    exchanges += 2
                    elements += 2 * here * p * reach / (shape[dim] or 1)
        whole = [axis for axis in demand.divides if axis not in wanted and axis not in now]
        if whole:
            p = mesh.along_all(whole)
            exchanges += 1
            elements += 2 * here * (p - 1) / p
        return exchanges * costs.latency + elements * size / costs.bandwidth
