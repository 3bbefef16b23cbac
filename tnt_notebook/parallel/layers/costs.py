"""What layouts cost: seconds of a training step, and bytes of a rank.

Seconds are those that layers take, measured where that is known, and what is exchanged between and
within them: each direction of a conversion takes the latency of the network, its bytes by the
bandwidth, and reading and writing the copy that it makes. Bytes are those of weights, gradients and
what the optimizer keeps; and of values that backward needs, once for each layout in which they are
taken.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import tensorflow as tf

from tnt_notebook.parallel.layer_graph.graph import Graph, trained_values
from tnt_notebook.parallel.layers.layout import InputLayout, Layout
from tnt_notebook.parallel.layers.program import (
    Ways,
    input_layout_of,
    layout_of,
    shape_of,
    weight_layouts,
)
from tnt_notebook.parallel.layers.rule import LayerCall
from tnt_notebook.parallel.layers.traffic import Traffic, allreduced, numbers_of, traffic_of
from tnt_notebook.plan.mesh import DATA, Mesh
from tnt_notebook.plan.network import ASSUMED, Link


@dataclass(frozen=True)
class Costs:
    """What a rank can do, and what layers were seen to take and keep.

    Attributes:
        flops: floating-point operations in a second.
        memory: bytes that a layer reads or writes in a second.
        link: what ranks exchange with.
        calls: by number of the call, seconds of its forward and backward on one rank, as measured;
            of others they are estimated from operations and bytes.
        held: values that backward needs; None: all.
        inner: by number of the call, bytes that its backward needs beside them.
        slots: bytes that the optimizer keeps for a byte of trained weights.
    """

    flops: float = 2e10
    memory: float = 5e9
    link: Link = ASSUMED
    calls: Mapping[int, float] = field(default_factory=dict)
    held: frozenset[int] | None = None
    inner: Mapping[int, int] = field(default_factory=dict)
    slots: float = 2.0


class CallCost(NamedTuple):
    """What a call takes.

    Attributes:
        work: seconds of the layer itself, forward and backward.
        converting: seconds of the conversions of what it takes, and of sums inside of it.
        gradients: seconds in which the gradients of its weights are added up, if nothing hides it.
        weights: bytes of its weights, their gradients, and what the optimizer keeps.
        activations: bytes of what it keeps for backward.
        summed: bytes of gradients that ranks add up which divide the call.
    """

    work: float = 0.0
    converting: float = 0.0
    gradients: float = 0.0
    weights: int = 0
    activations: int = 0
    summed: int = 0

    @property
    def seconds(self) -> float:
        """All of them together."""
        return self.work + self.converting + self.gradients

    @property
    def bytes(self) -> int:
        """All of them together."""
        return self.weights + self.activations


#: What a layer does whose ranks compute different parts of what it gives whole.
SUM_INSIDE = "sum inside"

#: A value, as some layer takes it.
Taken = tuple[int, InputLayout]


class Estimate:
    """Of the calls of a graph on a mesh.

    Args:
        samples: of a batch, on each replica.
        asked: the layouts into which values are brought as soon as there are any, by value.
    """

    def __init__(
        self,
        graph: Graph,
        mesh: Mesh,
        samples: int,
        costs: Costs,
        asked: Mapping[int, Layout] | None = None,
    ) -> None:
        self.graph, self.mesh, self.samples, self.costs = graph, mesh, samples, costs
        self.asked = asked or {}
        self._learning = trained_values(graph)
        self._known: dict[Any, list[Traffic]] = {}
        self._calls: dict[Any, tuple[CallCost, list[Taken], Ways]] = {}
        self._copies: dict[Any, tuple[float, int]] = {}

    def call(
        self,
        number: int,
        layer_call: LayerCall,
        ways: Ways,
        layouts: Mapping[int, Layout],
        known: set[Taken],
        is_first: bool = True,
    ) -> CallCost:
        """What a call takes, with the conversions that are not known; these are known then.

        Args:
            number: of the call in the graph.
            layouts: of the values that it takes.
            is_first: whether its layer has not been called before.
        """
        own, takes = self._own(number, layer_call, ways, is_first)
        converting, activations = own.converting, own.activations
        for value, input_layout in takes:
            seconds, kept = self._taken(value, layouts[value], input_layout, known)
            converting, activations = converting + seconds, activations + kept
        return own._replace(converting=converting, activations=activations)

    def _own(
        self, number: int, layer_call: LayerCall, ways: Ways, is_first: bool
    ) -> tuple[CallCost, list[Taken]]:
        """What a call takes but for conversions of what it is given; and how it takes that. Asked
        again and again while layouts are chosen."""
        key = number, id(ways), is_first
        if key not in self._calls:
            takes = [(v, input_layout_of(ways, i)) for i, v in enumerate(layer_call.call.takes)]
            spent = self._spent(number, layer_call, ways, is_first)
            self._calls[key] = spent, takes, ways  # which keeps its id from being another's
        spent, takes, _ = self._calls[key]
        return spent, takes

    def _spent(self, number: int, layer_call: LayerCall, ways: Ways, is_first: bool) -> CallCost:
        divided = self.mesh.along_all(ways)
        converting = 0.0
        activations = math.ceil(self.costs.inner.get(number, 0) / divided)
        if inside := self.inside(layer_call, ways):
            value = layer_call.call.gives[0]
            summed = self.bytes(value, layout_of(ways, 0).axes)
            converting += self.seconds(inside, value) + 2 * summed / self.costs.memory
        for place, value in enumerate(layer_call.call.gives):
            made = layout_of(ways, place)
            if value in self.asked:
                input_layout = InputLayout(self.asked[value].splits)
                converting += self._taken(value, made, input_layout, set())[0]
            if self._is_held(value):
                activations += self.bytes(value, made.axes)
        gradients, weights, summed = self._weights(layer_call, ways) if is_first else (0.0, 0, 0)
        work = self.work(number, layer_call) / divided
        return CallCost(work, converting, gradients, weights, activations, summed)

    def end(self, layouts: Mapping[int, Layout], known: set[Taken]) -> CallCost:
        """To have the outputs of the model whole."""
        seconds, kept = 0.0, 0
        for value in self.graph.outputs:
            more = self._taken(value, layouts[value], InputLayout(), known)
            seconds, kept = seconds + more[0], kept + more[1]
        return CallCost(converting=seconds, activations=kept)

    def begin(self, layouts: Mapping[int, Layout] | None = None) -> CallCost:
        """What the model is given: in these layouts, else whole on every rank."""
        axes = {value: layout.axes for value, layout in (layouts or {}).items()}
        held = [value for value in self.graph.inputs if self._is_held(value)]
        return CallCost(activations=sum(self.bytes(v, axes.get(v, {})) for v in held))

    def work(self, number: int, layer_call: LayerCall) -> float:
        """Seconds of a call on one rank, forward and backward."""
        if number in self.costs.calls:
            return self.costs.calls[number]

        def size(shape: Any) -> int:
            return numbers_of(shape, self.samples, self.mesh, {})

        flops = 0.0
        for weight in getattr(layer_call.layer, "trainable_variables", []):
            if len(weight.shape) > 1:
                flops += 2.0 * math.prod(weight.shape) * size(layer_call.gives[0][:-1])
        numbers = sum(size(shape) for shape in (*layer_call.takes, *layer_call.gives))
        return 3 * (flops / self.costs.flops + 4 * numbers / self.costs.memory)

    def traffic(self, value: int, layout: Layout, input_layout: InputLayout) -> list[Traffic]:
        """The steps of a conversion; back only where the value has a gradient."""
        key = value, layout, input_layout
        if key not in self._known:
            shape = shape_of(self.graph, value)
            steps = traffic_of(shape, self.samples, layout, input_layout, self.mesh)
            if value not in self._learning:
                steps = [replace(step, backward=0.0) for step in steps if step.forward]
            self._known[key] = steps
        return self._known[key]

    def inside(self, layer_call: LayerCall, ways: Ways) -> list[Traffic]:
        """Sums of what ranks compute in different parts, and give whole."""
        found = []
        for place, value in enumerate(layer_call.call.gives):
            axes = [axis for axis, way in ways.items() if way.gives[place] is None]
            if axes and value in self._learning:
                cut = layout_of(ways, place).axes
                block = numbers_of(layer_call.gives[place], self.samples, self.mesh, cut)
                sent = allreduced(block, axes, self.mesh)
                found.append(Traffic(SUM_INSIDE, tuple(axes), sent, 0.0))
        return found

    def seconds(self, steps: list[Traffic], value: int) -> float:
        """Of a conversion, there and back."""
        link, size = self.costs.link, self.item_bytes(value)
        return sum(
            link.seconds((step.forward + step.backward) * size, step.messages) for step in steps
        )

    def item_bytes(self, value: int) -> int:
        """Of a number of a value."""
        return tf.as_dtype(self.graph.specs[value].dtype).size or 4

    def bytes(
        self, value: int, axes: Mapping[int, str], rows: Mapping[int, Any] | None = None
    ) -> int:
        """Of the largest block of a value; see :func:`~.traffic.numbers_of`."""
        shape = shape_of(self.graph, value)
        return self.item_bytes(value) * numbers_of(shape, self.samples, self.mesh, axes, rows)

    def _is_held(self, value: int) -> bool:
        return self.costs.held is None or value in self.costs.held

    def _taken(
        self, value: int, layout: Layout, input_layout: InputLayout, known: set[Taken]
    ) -> tuple[float, int]:
        """Seconds of a conversion, and bytes of the copy that it makes."""
        if (value, input_layout) in known:
            return 0.0, 0
        known.add((value, input_layout))
        key = value, layout, input_layout
        if key not in self._copies:
            self._copies[key] = self._copy(value, layout, input_layout)
        return self._copies[key]

    def _copy(self, value: int, layout: Layout, input_layout: InputLayout) -> tuple[float, int]:
        steps = self.traffic(value, layout, input_layout)
        is_copy = input_layout.axes != layout.axes or any(step.forward for step in steps)
        seconds = self.seconds(steps, value)
        if not is_copy:
            return seconds, 0
        copied = self.bytes(value, input_layout.axes, dict(input_layout.rows))
        back = value in self._learning
        seconds += 2 * (1 + back) * copied / self.costs.memory  # read and written
        return seconds, copied if self._is_held(value) else 0

    def _weights(self, layer_call: LayerCall, ways: Ways) -> tuple[float, int, int]:
        """Seconds in which gradients are added up; bytes in all, and of those gradients that ranks
        of this mesh add up which divide the call."""
        seconds, kept, summed = 0.0, 0.0, 0
        trained = {id(v) for v in getattr(layer_call.layer, "trainable_variables", [])}
        own = weight_layouts(layer_call, ways)
        for variable in getattr(layer_call.layer, "variables", []):
            layout = own[id(variable)]
            numbers = numbers_of(variable.shape, 1, self.mesh, layout.axes)
            size = numbers * (tf.as_dtype(variable.dtype).size or 4)
            kept += size
            if id(variable) in trained:
                kept += size * (1 + self.costs.slots)
                ranks = self.mesh.along(DATA) * self.mesh.along_all(layout.summed)
                seconds += self.costs.link.seconds(2 * size * (ranks - 1) / ranks, messages=0)
                summed += size if layout.summed else 0
        return seconds, math.ceil(kept), summed
