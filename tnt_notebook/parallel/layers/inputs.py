"""Inputs of a model in blocks: where all layers that take one cut it alike, a rank is given its
block, and what it needs beyond that comes from its neighbours, as between layers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import keras
import tensorflow as tf

from tnt_notebook.keras.graph import functional_of, places_of_inputs
from tnt_notebook.keras.state import is_of_keras
from tnt_notebook.parallel.data import Block, Blocks, unpack
from tnt_notebook.parallel.layers.boxes import Range
from tnt_notebook.parallel.layers.layout import Layout
from tnt_notebook.parallel.layers.program import Program, input_layout_of, shape_of
from tnt_notebook.parallel.layers.ranks import MeshRanks
from tnt_notebook.parallel.layers.rule import Shape

#: Steps of Keras's own that see inputs; a model with others may want them whole.
_STEPS = ("train_step", "test_step", "predict_step", "compute_loss", "compute_metrics")


def input_layouts(program: Program) -> dict[int, Layout]:
    """By value, the inputs that can be given in blocks, and in which: in the dimensions that all
    calls which take them cut by the same axis."""
    graph = program.graph
    splits: dict[int, set[tuple[int, str]]] = {}
    for layer_call, ways in zip(program.layer_calls, program.ways, strict=True):
        for place, value in enumerate(layer_call.call.takes):
            wanted = set(input_layout_of(ways, place).splits)
            splits[value] = splits.get(value, wanted) & wanted
    return {
        value: Layout(tuple(sorted(splits[value])))
        for value in graph.inputs
        if splits.get(value) and value not in graph.outputs and value not in graph.sparse
    }


def input_blocks(model: keras.Model, program: Program, ranks: MeshRanks, element: Any) -> Blocks:
    """What this rank is to be given of each sample; the same choice on all ranks.

    Args:
        element: a batch, in tf.TensorSpec.

    Returns:
        Nothing of inputs that have to be whole: those of which the size is not known, or that are
        not dense; and all, where the model has a step of its own that may look at them.
    """
    functional = functional_of(model)
    # The steps' own replacement hangs on the instance, not on the class.
    of_keras = all(is_of_keras(getattr(type(model), name)) for name in _STEPS)
    if functional is None or not of_keras:
        return ()
    x = unpack(element)[0]
    places, leaves = places_of_inputs(functional, x), keras.tree.flatten(x)
    layouts, result = input_layouts(program), []
    for value, leaf in zip(program.graph.inputs, places or (), strict=bool(places)):
        shape = shape_of(program.graph, value)
        sizes = tuple(n for n in shape[1:] if n is not None)
        if value in layouts and _has_shape(leaves[leaf], shape[1:]):
            result.append(Block(leaf, sizes, _box(layouts[value], shape, ranks)))
    return tuple(result)


def layouts_within(
    program: Program, ranks: MeshRanks, given: Mapping[int, Any]
) -> dict[int, Layout]:
    """Of inputs of which some are blocks, the layouts of those, by value."""
    result = {}
    for value, layout in input_layouts(program).items():
        box = _box(layout, shape_of(program.graph, value), ranks)
        if all(given[value].shape[dim] == end - begin for dim, (begin, end) in box):
            result[value] = layout
    return result


def _box(layout: Layout, shape: Shape, ranks: MeshRanks) -> tuple[tuple[int, Range], ...]:
    """What this rank has in a layout."""
    result = []
    for dim, axis in layout.splits:
        size = shape[dim]
        assert size is not None  # or no rule would cut it
        result.append((dim, ranks.rows(size, axis)))
    return tuple(result)


def _has_shape(spec: Any, shape: Shape) -> bool:
    """Whether a tensor has samples of a shape that is known, as far as can be seen of it."""
    if not isinstance(spec, tf.TensorSpec) or None in shape:
        return False
    same_rank = spec.shape.rank in (None, len(shape) + 1)
    return bool(same_rank and spec.shape.is_compatible_with([None, *shape]))
