"""A model on a mesh: for each call of a layer the ways along axes, and what follows from them.

    value 3   32 x 32 x 16, in blocks of rows    layout   1: height
    conv2     takes rows with a halo             input    1: height, rows -1 to 17 and 15 to 33
              gives blocks of rows               layout   1: height

Between a layout and an input layout that differ stands a conversion.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import keras

from tnt_notebook.keras.graph import set_mask
from tnt_notebook.parallel.layer_graph.graph import Call, Graph
from tnt_notebook.parallel.layers import rules  # noqa: F401  it declares those of Keras's layers
from tnt_notebook.parallel.layers.convert import converted
from tnt_notebook.parallel.layers.layout import WHOLE, InputLayout, Layout, splits_of
from tnt_notebook.parallel.layers.outputs import Output, Outputs
from tnt_notebook.parallel.layers.ranks import MeshRanks
from tnt_notebook.parallel.layers.rule import (
    PARTIAL,
    SAME,
    BlockCall,
    Draw,
    LayerCall,
    Shape,
    Way,
    drawn,
    rule_of,
)

#: By axis of the mesh; without those along which all ranks do the same.
Ways = Mapping[str, Way]


def shape_of(graph: Graph, value: int) -> Shape:
    """Of a value: sizes that depend on the batch are not known."""
    return tuple(n if n is not None and n >= 0 else None for n in graph.shapes[value])


def layer_call_of(graph: Graph, call: Call) -> LayerCall:
    """A call as rules see it."""
    takes = tuple(shape_of(graph, value) for value in call.takes)
    gives = tuple(shape_of(graph, value) for value in call.gives)
    sparse = frozenset(place for place, value in enumerate(call.takes) if value in graph.sparse)
    made = graph.sparse.difference(graph.inputs)
    return LayerCall(call, takes, gives, sparse, made.isdisjoint((*call.takes, *call.gives)))


def input_layout_of(ways: Ways, place: int) -> InputLayout:
    """The layout in which a call takes one of its values."""
    cuts = {axis: cut for axis, way in ways.items() if (cut := way.takes[place]) is not None}
    taken = {cut.dim for cut in cuts.values()}
    around = {dim: rows for cut in cuts.values() for dim, rows in cut.around if dim not in taken}
    return InputLayout(
        splits_of({cut.dim: axis for axis, cut in cuts.items()}),
        tuple((cut.dim, cut.rows) for cut in cuts.values() if cut.rows is not None),
        frozenset(axis for axis, way in ways.items() if way.divides),
        next((ways[axis].fill for axis, cut in cuts.items() if cut.rows is not None), 0.0),
        tuple(sorted(around.items())),
    )


def layout_of(ways: Ways, place: int) -> Layout:
    """The layout in which it gives one."""
    gives = {axis: way.gives[place] for axis, way in ways.items()}
    return Layout(
        splits_of({dim: axis for axis, dim in gives.items() if isinstance(dim, int)}),
        frozenset(axis for axis, dim in gives.items() if dim == PARTIAL),
    )


def given_by(layer_call: LayerCall, ways: Ways, asked: Mapping[int, Layout]) -> dict[int, Layout]:
    """The layouts of all that a call gives, for the calls after it: by value, those that are asked
    for, or that follow from its ways."""
    made = {value: layout_of(ways, place) for place, value in enumerate(layer_call.call.gives)}
    return made | {value: asked[value] for value in made if value in asked}


def fit_together(layer_call: LayerCall, ways: Ways) -> bool:
    """Whether ways along several axes can be taken at once: no dimension is cut twice."""
    for place in range(len(layer_call.takes)):
        dims = [c.dim for way in ways.values() if (c := way.takes[place]) is not None]
        if len(set(dims)) < len(dims):
            return False
    for place in range(len(layer_call.gives)):
        dims = [d for way in ways.values() if isinstance(d := way.gives[place], int)]
        if len(set(dims)) < len(dims):
            return False
    weights: dict[int, list[int]] = {}
    for way in ways.values():
        for key, dim in way.weights.items():
            if dim != SAME:
                weights.setdefault(key, []).append(dim)
    return all(len(set(dims)) == len(dims) for dims in weights.values())


@dataclass(frozen=True)
class WeightLayout:
    """Of a weight: which dimension an axis cuts, and over which axes its gradient is added up."""

    splits: tuple[tuple[int, str], ...] = ()
    summed: frozenset[str] = frozenset()

    @property
    def axes(self) -> dict[int, str]:
        return dict(self.splits)


def weights_of(call: Call) -> list[keras.Variable]:
    """The weights of a call: of its layer, and those that it is given as they are, as operations
    are."""
    own = getattr(call.operation, "variables", [])
    return [*own, *(given for given in call.others if isinstance(given, keras.Variable))]


def weight_layouts(layer_call: LayerCall, ways: Ways) -> dict[int, WeightLayout]:
    """Of all weights of a call, by id."""
    result = {}
    for variable in weights_of(layer_call.call):
        kinds = {axis: way.weights.get(id(variable), "summed") for axis, way in ways.items()}
        result[id(variable)] = WeightLayout(
            splits_of({dim: axis for axis, dim in kinds.items() if isinstance(dim, int)}),
            frozenset(axis for axis, kind in kinds.items() if kind == "summed"),
        )
    return result


@dataclass(frozen=True)
class Program:
    """What each call of a graph does on a mesh.

    Attributes:
        ways: of each call.
        asked: the layouts into which values are brought as soon as there are any, by value.
    """

    graph: Graph
    ways: Sequence[Ways]
    asked: Mapping[int, Layout] = field(default_factory=dict)

    @cached_property
    def layer_calls(self) -> list[LayerCall]:
        return [layer_call_of(self.graph, call) for call in self.graph.calls]

    @cached_property
    def weights(self) -> dict[int, WeightLayout]:
        """The layouts of all weights, by id; of those of several calls, in all the same."""
        found: dict[int, WeightLayout] = {}
        for layer_call, ways in zip(self.layer_calls, self.ways, strict=True):
            found |= weight_layouts(layer_call, ways)
        return found

    def run(
        self,
        inputs: Mapping[int, Any],
        ranks: MeshRanks,
        training: bool,
        by_rank: bool = False,
        outputs: Outputs | None = None,
        layouts: Mapping[int, Layout] = {},
    ) -> Any:
        """Calls the layers on this rank's blocks.

        Args:
            inputs: of the model, by value.
            by_rank: see :class:`~.rule.BlockCall`.
            outputs: gets those that are in blocks; default: they are gathered.
            layouts: of inputs that are in blocks; all others are whole.

        Returns:
            What the model returns: whole, or this rank's blocks.
        """
        structure = self.graph.output_structure
        every, wanted = range(len(self.ways)), keras.tree.flatten(structure)
        found = self.run_part(
            inputs, ranks, training, every, wanted, by_rank, outputs=outputs, layouts=layouts
        )
        return keras.tree.map_structure(lambda n: found[n], structure)

    def run_part(
        self,
        inputs: Mapping[int, Any],
        ranks: MeshRanks,
        training: bool,
        calls: range,
        wanted: Sequence[int],
        by_rank: bool = False,
        called: Callable[[Call], None] = lambda call: None,
        run: Callable[[Call, dict[int, Any]], None] | None = None,
        draw: Draw = drawn,
        outputs: Outputs | None = None,
        layouts: Mapping[int, Layout] = {},
    ) -> dict[int, Any]:
        """Makes some of the calls, as those of a stage.

        Args:
            inputs: what these take that others make, by value.
            wanted: the values that are to be given.
            called: called after each call, with it.
            run: makes a call that is not divided; default: its layer does.
            draw: of what is divided: see :class:`BlockCall`.
            outputs: gets those values that are in blocks; default: they are gathered.
            layouts: of inputs that are in blocks; all others are whole.

        Returns:
            The values, whole, or this rank's blocks.
        """
        graph = self.graph
        parts = {value: (tensor, layouts.get(value, WHOLE)) for value, tensor in inputs.items()}
        made: dict[tuple[int, InputLayout], Any] = {}

        def taken(value: int, input_layout: InputLayout, layer: str) -> Any:
            # Layers that take the same in the same way share a conversion.
            if (value, input_layout) not in made:
                tensor, layout = parts[value]
                shape = shape_of(graph, value)
                made[value, input_layout] = converted(
                    tensor, shape, layout, input_layout, ranks, layer
                )
            return made[value, input_layout]

        for layer_call, ways in zip(
            self.layer_calls[calls.start : calls.stop],
            self.ways[calls.start : calls.stop],
            strict=True,
        ):
            call = layer_call.call
            values = {
                value: taken(value, input_layout_of(ways, place), call.name)
                for place, value in enumerate(call.takes)
            }
            if ways:
                rule = rule_of(call.operation)
                assert rule is not None  # it has given the ways
                given = rule.run(
                    BlockCall(layer_call, ways, ranks, values, training, by_rank, draw)
                )
            else:
                if run is None:
                    call.run(values, training)
                else:
                    run(call, values)
                given = [values[n] for n in call.gives]
            for place, (value, tensor) in enumerate(zip(call.gives, given, strict=True)):
                parts[value] = tensor, layout_of(ways, place)
                if (asked := self.asked.get(value)) is not None:
                    parts[value] = taken(value, InputLayout(asked.splits), call.name), asked
            called(call)

        def returned(value: int) -> Any:
            layout = parts[value][1]
            if outputs is None or not layout.splits or value in graph.masked:
                tensor = taken(value, InputLayout(), "the outputs")
                if (mask := graph.masked.get(value)) in parts:
                    set_mask(tensor, taken(mask, InputLayout(), "the outputs"))
                return tensor
            block = taken(
                value, InputLayout(layout.splits, divides=frozenset(layout.dims)), "the loss"
            )
            whole = functools.partial(taken, value, InputLayout(), "the outputs")
            return outputs.add(Output(block, shape_of(graph, value), layout, whole))

        return {value: returned(value) for value in dict.fromkeys(wanted)}
