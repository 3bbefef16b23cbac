"""What to expect of a model on a mesh, layer by layer, before it runs: from measurements on this
rank alone, now or earlier."""

from __future__ import annotations

import math
from collections.abc import Sequence

import keras

from tnt_notebook.parallel.layer_graph.graph import Graph
from tnt_notebook.parallel.layer_graph.profile import Report, measured_of
from tnt_notebook.parallel.layer_graph.survey import surveyed
from tnt_notebook.parallel.layers.activations import is_known
from tnt_notebook.parallel.layers.choose import chosen, spent_on
from tnt_notebook.parallel.layers.costs import Estimate
from tnt_notebook.parallel.layers.inputs import input_layouts
from tnt_notebook.parallel.layers.layout import WHOLE, InputLayout, Layout
from tnt_notebook.parallel.layers.layout_map import Wanted
from tnt_notebook.parallel.layers.measured import costs_of
from tnt_notebook.parallel.layers.program import (
    Program,
    input_layout_of,
    layer_call_of,
    layout_of,
)
from tnt_notebook.parallel.layers.rule import (
    SPATIAL,
    SPATIAL_NAMES,
    LayerCall,
    name_of,
    rule_of,
    ways_of,
)
from tnt_notebook.parallel.layers.traffic import Traffic
from tnt_notebook.plan.layouts import ConversionPlan, LayerPlan, MeshPlan
from tnt_notebook.plan.measurements import Measured
from tnt_notebook.plan.mesh import DATA, Mesh
from tnt_notebook.plan.network import Link

#: Ranks at most among which a search divides the work inside of layers.
_MOST_PARTS = 8
#: Axes of space, the first that a model has counts; and one of any other dimension.
_SPATIAL, _ANY = SPATIAL[3], "model"


def foreseen(
    model: keras.Model,
    mesh: Mesh,
    batch_size: int,
    layouts: Wanted | None = None,
    link: tuple[Link, int] | None = None,
    memory_limit: int | None = None,
    report: Report | None = None,
    measured: Sequence[Measured] | None = None,
    graph: Graph | None = None,
    known: dict[str, Program] | None = None,
) -> MeshPlan:
    """Chooses layouts as a fit does, with the times of layers on this rank.

    Args:
        mesh: of any number of ranks, which need not be there.
        batch_size: samples of a batch, of all replicas together.
        layouts: those that some layers are to have.
        link: what ranks exchange with, and among how many that was measured; None: it is assumed.
        memory_limit: bytes that a rank may need.
        report: called with how many layers of how many have been measured.
        measured: of each call, with a replica's samples; None: it is measured here.
        graph: of the model, where that is known.
        known: by inner axes, the layouts that were chosen for another number of samples, and are
            taken for this one, too; gets those that are chosen here. None: they are chosen.

    Raises:
        ModelError: the model has no graph of layers, or a layer is stateful.
        MeshError: layouts are of axes or layers that are not there, or none fit into the memory.
    """
    graph = graph or surveyed(model)
    replicas = mesh.along(DATA)
    samples = -(-batch_size // replicas)
    if measured is None:
        measured = measured_of(model, graph, samples, report, together=True)
    costs = costs_of(model, graph, measured, link[0] if link else None)
    memory = math.inf if memory_limit is None else memory_limit
    known = {} if known is None else known
    if mesh.inner_text not in known:
        known[mesh.inner_text] = chosen(graph, mesh, samples, costs, layouts, memory)
    program = known[mesh.inner_text]
    estimate = Estimate(graph, mesh, samples, costs)
    begin, *of_calls, end = spent_on(program, estimate, input_layouts(program))
    made, conversions = planned_conversions(program, estimate)
    alone = Estimate(graph, Mesh(data=1), replicas * samples, costs)
    layers = [
        LayerPlan(
            name=layer_call.call.name,
            kind=type(layer_call.layer).__name__,
            ways={axis: way.name for axis, way in ways.items()},
            layout=_in_words(layer_call, made),
            conversions=conversions[number],
            alone_s=replicas * estimate.work(number, layer_call),
            work_s=spent.work,
            conversions_s=spent.converting,
            weights=spent.weights,
            activations=spent.activations,
            whole="" if ways else why_whole(layer_call, mesh),
            summed=spent.summed,
        )
        for number, (layer_call, ways, spent) in enumerate(
            zip(program.layer_calls, program.ways, of_calls, strict=True)
        )
    ]
    undivided = Program(graph, [{} for _ in graph.calls])
    return MeshPlan(
        mesh=str(mesh),
        ranks=mesh.size,
        replicas=replicas,
        batch_size=batch_size,
        samples=samples,
        layers=tuple(layers),
        outputs=conversions[-1],
        outputs_s=end.converting,
        inputs=begin.activations,
        outputs_bytes=end.activations,
        gradients_s=sum(spent.gradients for spent in of_calls),
        alone_bytes=_alone_bytes(undivided, alone, replicas),
        link=costs.link,
        link_ranks=link[1] if link else 0,
        memory_limit=memory_limit,
    )


def meshes_of(graph: Graph, ranks: int) -> tuple[str, ...]:
    """Along which axes so many ranks could divide the work of at least one layer, as of
    :class:`~tnt_notebook.plan.best.Way`: a single axis, of space or of any other dimension."""
    counts = [parts for parts in range(2, min(ranks, _MOST_PARTS) + 1) if ranks % parts == 0]
    calls = [layer_call_of(graph, call) for call in graph.calls]

    def divides(axis: str) -> bool:
        return any(ways_of(call, axis, counts[0]) for call in calls)

    if not counts:
        return ()
    axes = [*[axis for axis in _SPATIAL if divides(axis)][:1], *filter(divides, [_ANY])]
    return tuple(f"{axis}={parts}" for axis in axes for parts in counts)


def why_whole(layer_call: LayerCall, mesh: Mesh) -> str:
    """Why the work of a layer is not divided, in words."""
    layer, kind = layer_call.layer, type(layer_call.layer).__name__
    axes = [axis for axis in mesh.inner if mesh.along(axis) > 1]
    if not axes:
        return "the mesh divides nothing but data"
    if rule_of(layer) is None:
        return f"no rule for {kind}"
    if getattr(layer, "activity_regularizer", None) is not None:
        return "it has an activity regularizer"
    if not is_known(getattr(layer, "activation", None)):
        return "its activation is one of your own"
    if any(ways_of(layer_call, axis, mesh.along(axis)) for axis in axes):
        return "it takes longer where it is divided"
    in_space = all(axis in SPATIAL_NAMES for axis in axes)
    what = " and ".join(axes)
    return f"no {what} to cut" if in_space else f"no way to divide it along {what}"


def planned_conversions(
    program: Program, estimate: Estimate
) -> tuple[dict[int, Layout], list[tuple[ConversionPlan, ...]]]:
    """The layouts of all values; and the conversions before each call, and at the end."""
    graph = program.graph
    inputs = input_layouts(program)
    layouts: dict[int, Layout] = {value: inputs.get(value, WHOLE) for value in graph.inputs}
    known: set[tuple[int, InputLayout]] = set()

    def steps(taken: Sequence[tuple[int, InputLayout]]) -> tuple[ConversionPlan, ...]:
        found: list[ConversionPlan] = []
        for value, input_layout in taken:
            if (value, input_layout) not in known:
                known.add((value, input_layout))
                size = estimate.item_bytes(value)
                made = estimate.traffic(value, layouts[value], input_layout)
                found += [_planned(step, size) for step in made]
        return tuple(found)

    result: list[tuple[ConversionPlan, ...]] = []
    for layer_call, ways in zip(program.layer_calls, program.ways, strict=True):
        before = steps([(v, input_layout_of(ways, i)) for i, v in enumerate(layer_call.call.takes)])
        size = estimate.item_bytes(layer_call.call.gives[0])
        inside = tuple(_planned(step, size) for step in estimate.inside(layer_call, ways))
        result.append((*before, *inside))
        layouts.update((v, layout_of(ways, i)) for i, v in enumerate(layer_call.call.gives))
    result.append(steps([(value, InputLayout()) for value in graph.outputs]))
    return layouts, result


def _planned(step: Traffic, size: int) -> ConversionPlan:
    there, back = round(step.forward * size), round(step.backward * size)
    return ConversionPlan(step.what, step.axes, there, back)


def _in_words(layer_call: LayerCall, layouts: dict[int, Layout]) -> str:
    """The layouts of what a call gives, each once."""
    found = (
        layout_in_words(layouts[value], len(shape))
        for value, shape in zip(layer_call.call.gives, layer_call.gives, strict=True)
    )
    return "; ".join(dict.fromkeys(found))


def layout_in_words(layout: Layout, rank: int) -> str:
    """``split along height, summands over model``; ``whole``.

    Args:
        rank: how many dimensions the value has.
    """
    parts = []
    for dim, axis in layout.splits:
        name = name_of(rank, dim)
        rows = f"split along {name}" if name in SPATIAL_NAMES else name
        over = "" if axis == name else f" over {axis}"
        parts.append(f"dimension {dim} over {axis}" if name.isdigit() else f"{rows}{over}")
    parts += [f"summands over {axis}" for axis in sorted(layout.partial)]
    return ", ".join(parts) or "whole"


def _alone_bytes(program: Program, estimate: Estimate, replicas: int) -> int:
    """What one rank needs with the batch of all replicas."""
    begin, *of_calls, end = spent_on(program, estimate)
    inner = (replicas - 1) * sum(estimate.costs.inner.values())
    return round(inner) + sum(spent.bytes for spent in (begin, *of_calls, end))
