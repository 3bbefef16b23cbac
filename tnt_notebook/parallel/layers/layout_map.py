"""Layouts by weights: those that a distribution of Keras says, as with a LayoutMap.

    layout_map["dense/kernel"] = (None, "model")        the way "columns", which cuts the kernel in
    layout_map["dense/bias"] = ("model",)                dimension 1 and the bias in dimension 0
    layout_map["dense/output"] = ("batch", None)        what it gives is whole, of each sample

Of a layer those ways are left that cut each of its weights as is said; a weight of which nothing
is said is whole. What a layer gives has the layout that follows from its way, and is brought into
another one where that is said.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import keras

from tnt_notebook.errors import MeshError
from tnt_notebook.keras import distribution as by_keras
from tnt_notebook.keras.graph import layers_within
from tnt_notebook.parallel.layer_graph.graph import Graph
from tnt_notebook.parallel.layers.layout import Layout, Splits, splits_of
from tnt_notebook.parallel.layers.program import Ways, shape_of, weight_layouts
from tnt_notebook.parallel.layers.rule import LayerCall, rule_of
from tnt_notebook.plan.mesh import DATA, Layouts, Mesh

#: So many ways of a layer are named where it has none that is asked for.
_MOST_NAMED = 6


class ByLayoutMap:
    """What a distribution of Keras says of the weights of a model, and of what its layers give.

    Args:
        distribution: a ``keras.distribution.ModelParallel`` or ``DataParallel``.
        batch: the axis of its mesh that cuts batches.
        mesh: its mesh, in which that is called ``data``.
        warns: whether this rank warns, of what all see.
    """

    def __init__(
        self, distribution: Any, model: keras.Model, batch: str, mesh: Mesh, warns: bool
    ) -> None:
        self._distribution, self._model = distribution, model
        self._batch, self._mesh, self._warns = batch, mesh, warns

    # Weights ----------------------------------------------------------------------------------

    def check_whole(self) -> None:
        """For a model that all ranks have whole: raises MeshError where something else is said."""
        self._check_paths()
        for layer in layers_within(self._model):
            path = by_keras.output_path(layer)
            axes = by_keras.output_axes(self._distribution, path)
            if axes is not None:
                self._layout(path, axes, (None,) * len(axes))

    def check(self, graph: Graph) -> None:
        """Raises MeshError if there is a layout that no layer of the graph could have."""
        self._check_paths()
        called = {id(call.operation) for call in graph.calls}
        within = {id(v) for call in graph.calls for v in getattr(call.operation, "variables", ())}
        for variable in self._model.variables:
            if id(variable) not in within and self._splits_of(variable):
                raise MeshError(
                    f"The layout of {variable.path} is {self._said_of(variable)}: no layer that "
                    "the model calls has it, so it is whole on every rank. Leave it out of the "
                    "LayoutMap."
                )
        for layer in layers_within(self._model):
            path = by_keras.output_path(layer)
            axes = by_keras.output_axes(self._distribution, path)
            if axes is None or id(layer) in called:
                continue
            if layer is self._model and set(axes[1:]) <= {None}:
                self._layout(path, axes, (None,) * len(axes))
                continue  # what a model gives is whole
            raise MeshError(
                f"The layout of {path} is {axes}, and {layer.name} is the model itself, a "
                "nested model, or called inside a layer. Only outputs of the layers that the model "
                "consists of can have a layout; leave this one out."
            )

    def _check_paths(self) -> None:
        """Of each weight, whatever its layer; and warns of keys of a LayoutMap that are of nothing
        in the model."""
        variables = self._model.variables
        for variable in variables:
            self._splits_of(variable)
        paths = [variable.path for variable in variables]
        outputs = list(map(by_keras.output_path, layers_within(self._model)))
        keys = by_keras.unmatched(self._distribution, paths + outputs)
        if keys and self._warns:
            known = ", ".join(paths[:_MOST_NAMED]) + ", ..." * (len(paths) > _MOST_NAMED)
            text = (
                f"{', '.join(map(repr, keys))} in the LayoutMap: no weight of the model "
                f"{self._model.name} has such a path, and no layer's output. Its weights are "
                f"{known}."
            )
            warnings.warn_explicit(text, UserWarning, "keras.distribution", 1)

    def fitting(self, layer_call: LayerCall, every: Sequence[Ways]) -> list[Ways]:
        """Of the ways of a call those that cut its weights as is said. Raises MeshError if there
        is none."""
        variables = list(getattr(layer_call.layer, "variables", ()))
        wanted = {id(v): self._splits_of(v) for v in variables}
        by_ways = [
            (ways, {key: layout.splits for key, layout in weight_layouts(layer_call, ways).items()})
            for ways in every
        ]
        fitting = [ways for ways, cut in by_ways if cut == wanted]
        if not fitting:
            raise MeshError(self._why_not(layer_call, variables, [cut for _, cut in by_ways]))
        return fitting

    def _splits_of(self, variable: keras.Variable) -> Splits:
        axes = by_keras.weight_axes(self._distribution, variable)
        cut = {dim: axis for dim, axis in enumerate(axes) if axis is not None}
        if self._batch in cut.values() and self._mesh.along(DATA) > 1:
            raise MeshError(
                f"The layout of {variable.path} is {axes}, and {self._batch!r} is the axis that "
                "cuts batches, along which each replica has all weights. Give the mesh an axis of "
                "its own for weights, as in shape=(1, 2), axis_names=('batch', 'model')."
            )
        return splits_of({d: axis for d, axis in cut.items() if self._mesh.along(axis) > 1})

    def _said_of(self, variable: keras.Variable) -> str:
        return _written(self._splits_of(variable), len(variable.shape))

    def _why_not(
        self,
        layer_call: LayerCall,
        variables: Sequence[keras.Variable],
        every: Sequence[Mapping[int, Splits]],
    ) -> str:
        layer = layer_call.layer
        wanted = ", ".join(f"{v.path} {self._said_of(v)}" for v in variables)
        others = [
            ", ".join(
                f"{v.path} {_written(cut[id(v)], len(v.shape))}" for v in variables if cut[id(v)]
            )
            for cut in every
        ]
        others = [one for one in dict.fromkeys(others) if one]
        kind = type(layer).__name__
        if others:
            named = "; or ".join(others[:_MOST_NAMED])
            can = f"It can have {named}. Its other weights are whole then, and need no layout."
        elif rule_of(layer) is None:
            can = (
                f"{kind} has no rule by which it could be divided: leave its weights out of the "
                "LayoutMap, write it as layers that have one, or give it one: see the guide, "
                "'A rule of your own'."
            )
        else:
            can = (
                "Its weights can only be whole here: it may be too small, or have a constraint, "
                "regularizer or activation that looks at all of them. Leave them out of the "
                "LayoutMap."
            )
        return (
            f"{kind} {layer.name} cannot be divided on the mesh {self._mesh} as the LayoutMap "
            f"says: {wanted}. {can}"
        )

    # What layers give -------------------------------------------------------------------------

    def outputs(self, graph: Graph) -> dict[int, Layout]:
        """The layouts that values of a graph are to have. Raises MeshError where one cannot."""
        asked: dict[int, Layout] = {}
        for call in graph.calls:
            if not isinstance(call.operation, keras.Layer):
                continue
            path = by_keras.output_path(call.operation)
            for value in call.gives[: len(call.gives) - len(call.masked)]:
                shape = shape_of(graph, value)
                axes = by_keras.output_axes(self._distribution, path, len(shape))
                if axes is not None:
                    asked[value] = self._layout(path, axes, shape)
        return asked

    def _layout(self, path: str, axes: by_keras.Axes, shape: tuple[int | None, ...]) -> Layout:
        along = self._mesh.along
        batch, *others = axes or (None,)
        cut = {d: axis for d, axis in enumerate(others, 1) if axis and axis != self._batch}
        cut = {d: axis for d, axis in cut.items() if along(axis) > 1}
        replicas = along(DATA) > 1
        if (replicas and (batch != self._batch or self._batch in others)) or (
            batch not in (None, self._batch) and along(batch) > 1
        ):
            raise MeshError(
                f"The layout of {path} is {axes}: the samples of every output are cut by the axis "
                f"{self._batch!r} and no other, so the layout begins with {self._batch!r}."
            )
        for dim, axis in cut.items():
            if (shape[dim] or 0) < along(axis):
                raise MeshError(
                    f"The layout of {path} is {axes}, and dimension {dim} of its shape {shape} "
                    f"cannot be cut for the {along(axis)} ranks along {axis!r}."
                )
        return Layout(splits_of(cut))


#: Layouts by names of layers, or by weights.
Wanted = Layouts | ByLayoutMap


def _written(splits: Splits, rank: int) -> str:
    """As in a LayoutMap."""
    axes = dict(splits)
    return str(tuple(axes.get(dim) for dim in range(rank)))
