"""Copies ops of one tf.function's graph into another, many at a time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import tensorflow as tf
from tensorflow.core.framework import graph_pb2

from tnt_notebook.keras.tensorflow import share_functions


class Copier:
    """Puts copies of a graph's ops into the graph that is being traced.

    Args:
        source: the graph of a concrete function.
    """

    def __init__(self, source: Any) -> None:
        definition = source.as_graph_def()
        self._versions = definition.versions
        self._definitions = {node.name: node for node in definition.node}
        share_functions(source, tf.compat.v1.get_default_graph())

    def copy(
        self,
        operations: Sequence[tf.Operation],
        inputs: Mapping[str, Sequence[tf.Tensor | None]],
        after: Mapping[str, Sequence[tf.Tensor]],
    ) -> list[tf.Operation]:
        """Copies ops that may use each other's results.

        Args:
            inputs: of each op, by name, what it gets for each of its inputs; None: what the copy of
                the op gives that gave it.
            after: of each op, by name, values that have to be there before it runs.
        """
        graph = graph_pb2.GraphDef(versions=self._versions)
        here = {op.name for op in operations}
        mapped: dict[str, tf.Tensor] = {}
        for op in operations:
            node = graph.node.add()
            node.CopyFrom(self._definitions[op.name])
            node.attr.pop("_class", None)
            names = []
            for own, given in zip(op.inputs, inputs[op.name], strict=True):
                if given is None:
                    names.append(own.name)
                else:
                    key = f"given{len(mapped)}"
                    mapped[f"{key}:0"] = taken_along(given)  # a loop takes from around it
                    names.append(key)
            names += [f"^{each.name}" for each in op.control_inputs if each.name in here]
            for value in after[op.name]:
                key = f"^before{len(mapped)}"
                mapped[key] = value
                names.append(key)
            del node.input[:]
            node.input.extend(names)
        made = tf.graph_util.import_graph_def(
            graph, input_map=mapped, return_elements=[op.name for op in operations], name="step"
        )
        return list(made)


def captured(graph: Any) -> Iterable[tuple[Any, tf.Tensor]]:
    """What a graph takes from around it: the value, and the graph's own input for it."""
    return list(graph.captures)


def taken_along(value: Any) -> tf.Tensor:
    """A value from around, as an input of the graph that is being traced."""
    return tf.compat.v1.get_default_graph().capture(value)


def graph_of(op: tf.Operation, attribute: str) -> Any:
    """The graph of a function that an op calls."""
    return op.graph._get_function(op.get_attr(attribute).name).graph
