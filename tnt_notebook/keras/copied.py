"""Copies ops of one tf.function's graph into another, many at a time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import tensorflow as tf
from tensorflow.core.framework import attr_value_pb2, graph_pb2, node_def_pb2
from tensorflow.python.framework.function_def_to_graph import function_def_to_graph

from tnt_notebook.keras.tensorflow import run_independently, share_functions


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
        after: Mapping[str, Sequence[tf.Tensor]] = {},
        chosen: Mapping[str, Sequence[int]] = {},
        condition: tf.Tensor | None = None,
    ) -> list[tuple[tf.Operation, list[tf.Tensor]]]:
        """Copies ops that may use each other's results.

        Args:
            inputs: of each op, by name, what it gets for each of its inputs; None: what the copy of
                the op gives that gave it.
            after: of each op, by name, values that have to be there before it runs.
            chosen: of each op, by name, outputs that are zeros unless ``condition`` holds.

        Returns:
            The copies, and what they give.
        """
        graph = graph_pb2.GraphDef(versions=self._versions)
        here = {op.name for op in operations}
        mapped: dict[str, tf.Tensor] = {}
        instead: dict[str, str] = {}
        for op in operations:
            node = graph.node.add()
            node.CopyFrom(self._definitions[op.name])
            node.attr.pop("_class", None)
            names = []
            for own, given in zip(op.inputs, inputs[op.name], strict=True):
                if given is None:
                    names.append(instead.get(own.name, own.name))
                else:
                    key = f"given{len(mapped)}"
                    mapped[f"{key}:0"] = taken_along(given)  # a loop takes from around it
                    names.append(key)
            names += [f"^{each.name}" for each in op.control_inputs if each.name in here]
            for value in after.get(op.name, ()):
                key = f"^before{len(mapped)}"
                mapped[key] = value
                names.append(key)
            del node.input[:]
            node.input.extend(names)
            for index in chosen.get(op.name, ()):
                mapped["condition:0"] = taken_along(condition)
                prefix = f"{op.name}/of_samples_{index}"
                while any(f"{prefix}/{part}" in self._definitions for part in ("zero", "Merge")):
                    prefix += "_"  # what was traced may have been written by a pass itself
                nodes = list(_or_zeros(op.outputs[index], "condition", prefix))
                graph.node.extend(nodes)
                instead[op.outputs[index].name] = f"{nodes[-1].name}:0"
        outputs = [instead.get(own.name, own.name) for op in operations for own in op.outputs]
        made = tf.graph_util.import_graph_def(
            graph,
            input_map=mapped,
            return_elements=[op.name for op in operations] + outputs,
            name="step",
        )
        chosen_here = set(instead.values())
        for name, output in zip(outputs, made[len(operations) :], strict=True):
            if name in chosen_here and output.op.type == "Merge":
                # TensorFlow would have it wait for all that has an effect and was written before
                # it, exchanges among that.
                run_independently(output)
        found = iter(made[len(operations) :])
        return [
            (copy, [next(found) for _ in op.outputs])
            for op, copy in zip(operations, made, strict=False)
        ]


#: Elements up to which a choice looks at the numbers.
_SMALL = 1 << 12


def _or_zeros(value: tf.Tensor, condition: str, prefix: str) -> Iterator[node_def_pb2.NodeDef]:
    """Ops of which the last gives a value, or zeros unless a condition holds; their names begin
    with the prefix."""
    dtype = attr_value_pb2.AttrValue(type=value.dtype.as_datatype_enum)

    def node(op: str, *inputs: str) -> node_def_pb2.NodeDef:
        made = node_def_pb2.NodeDef(name=f"{prefix}/{op}", op=op, input=inputs)
        made.attr["T"].CopyFrom(dtype)
        return made

    size = value.shape.num_elements()
    if size is None or size <= _SMALL:
        zero = node_def_pb2.NodeDef(name=f"{prefix}/zero", op="Const", attr={"dtype": dtype})
        zero.attr["value"].tensor.CopyFrom(tf.make_tensor_proto(0, value.dtype, ()))
        yield zero
        yield node("SelectV2", condition, value.name, zero.name)
        return
    # Without a look at the numbers, which would take as long as to copy them.
    switch = node("Switch", value.name, condition)
    zeros = node("ZerosLike", switch.name)
    merge = node("Merge", zeros.name, f"{switch.name}:1")
    merge.attr["N"].i = 2
    yield from (switch, zeros, merge)


#: The attribute of an op that says what it is for: graphs of gradients and of loops keep it.
_MARK = "_tnt_mark"


def marked(tensors: Sequence[tf.Tensor], mark: str) -> list[tf.Tensor]:
    """The same tensors, of an op that has a mark."""
    outputs: list[tf.Tensor] = tf.raw_ops.IdentityN(input=list(tensors))
    outputs[0].op._set_attr(_MARK, attr_value_pb2.AttrValue(s=mark.encode()))
    return outputs


def mark_of(op: tf.Operation) -> str:
    """The mark of an op; empty: it has none."""
    value: bytes = op.node_def.attr[_MARK].s if op.type == "IdentityN" else b""
    return value.decode()


def kept_alive(traced: Any) -> None:
    """Keeps what was traced for as long as there is the graph that is being traced, which has
    copies of its ops, and uses its variables."""
    graph = tf.compat.v1.get_default_graph()
    graph.add_to_collection("tnt_traced", traced)  # functions in Python, too
    for variable in traced.graph.variables:
        graph.watch_variable(variable)


def captured(graph: Any) -> Iterable[tuple[Any, tf.Tensor]]:
    """What a graph takes from around it: the value, and the graph's own input for it."""
    return list(graph.captures)


def taken_along(value: Any) -> tf.Tensor:
    """A value from around, as an input of the graph that is being traced."""
    return tf.compat.v1.get_default_graph().capture(value)


#: The attributes of ops that name the functions which they call.
_CALLED = {
    **dict.fromkeys(("PartitionedCall", "StatefulPartitionedCall"), ("f",)),
    **dict.fromkeys(("If", "StatelessIf"), ("then_branch", "else_branch")),
    **dict.fromkeys(("Case", "StatelessCase"), ("branches",)),
    **dict.fromkeys(("While", "StatelessWhile"), ("cond", "body")),
}


def functions_of(op: tf.Operation) -> list[Any]:
    """The graphs of the functions that an op calls, in the order of its attributes; none where
    Python does not know them."""
    found = []
    for attribute in _CALLED.get(op.type, ()):
        named = op.get_attr(attribute)
        for each in named if isinstance(named, list) else [named]:
            if op.graph._get_function(each.name) is None:
                return []
            found.append(_graph_of(each.name, op))
    return found


def _graph_of(name: str, op: tf.Operation) -> Any:
    """The graph of a function; of one of TensorFlow 1, as CTC's loops are, only its definition is
    there, from which the graph is made, once, for inputs of as many dimensions as there are."""
    function = op.graph._get_function(name)
    if hasattr(function, "graph"):
        return function.graph
    if not hasattr(function, "_tnt_graph"):
        count = len(function.definition.signature.input_arg)
        ranks = [tensor.shape.rank for tensor in op.inputs[len(op.inputs) - count :]]
        shapes = [None if rank is None else [None] * rank for rank in ranks]
        with op.graph.as_default():
            function._tnt_graph = function_def_to_graph(
                function.definition,
                input_shapes=[tf.TensorShape(shape) for shape in shapes],
                include_library_functions=True,
            )
    return function._tnt_graph
