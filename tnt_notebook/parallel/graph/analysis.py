"""Goes through a traced step once, and decides of each op what it needs and what it gives."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from tnt_notebook.parallel.graph import rules  # noqa: F401  (each file puts its rules in the table)
from tnt_notebook.parallel.graph.broadcasts import is_broadcast_known
from tnt_notebook.parallel.graph.counts import numbers
from tnt_notebook.parallel.graph.inference import inferred
from tnt_notebook.parallel.graph.layouts import (
    OWN,
    PART,
    SAME,
    SIZE,
    Layout,
    Rows,
    not_repeated,
)
from tnt_notebook.parallel.graph.node import Decision, Facts, Node
from tnt_notebook.parallel.graph.rules.elements import ALL
from tnt_notebook.parallel.graph.sizes import depends_on_rows, followed
from tnt_notebook.parallel.graph.table import RULES, Rule


class Decided(NamedTuple):
    """An op of the step, and what is to become of it."""

    op: tf.Operation
    decision: Decision
    has: list[Layout]
    has_rule: bool


def decided(operations: Iterable[tf.Operation], facts: Facts) -> list[Decided]:
    """Decides of each op, in the order of the graph.

    Args:
        operations: without the graph's own inputs, of which ``facts`` has the layouts.
    """
    return [_decided(op, facts) for op in _in_order(list(operations))]


def _in_order(operations: list[tf.Operation]) -> list[tf.Operation]:
    """Each op after those whose results it takes: gradients of loops give loops that were traced
    before more inputs."""
    names = {op.name for op in operations}
    placed: dict[str, tf.Operation] = {}
    for first in operations:
        path = [first]
        while path:
            op = path[-1]
            before = [*(tensor.op for tensor in op.inputs), *op.control_inputs]
            missing = [b for b in before if b.name in names and b.name not in placed]
            if missing and op.name not in placed:
                path.extend(missing)
            else:
                placed.setdefault(op.name, path.pop())
    return list(placed.values())


def of_function(
    graph: Any, layouts: Sequence[Layout], given: Sequence[tf.Tensor | None], facts: Facts
) -> tuple[Facts, list[Decided]]:
    """Decides of the ops of a function that an op calls.

    Args:
        layouts: of its inputs.
        given: the values that its inputs are in each call, where that is known.
        facts: those of the graph that calls it.
    """
    inside = Facts(of_function)
    for own, layout, outer in zip(graph.inputs, layouts, given, strict=True):
        inside.layouts[own.name] = not_repeated(layout)
        if outer is not None:
            if outer.name in facts.numbers:
                inside.numbers[own.name] = facts.numbers[outer.name]
            if (sizes := facts.known_sizes(outer)) is not None:
                inside.sizes[own.name] = sizes
    inputs = {own.op.name for own in graph.inputs}
    operations = [op for op in graph.get_operations() if op.name not in inputs]
    return inside, decided(operations, inside)


def _decided(op: tf.Operation, facts: Facts) -> Decided:
    node = Node(op, facts)
    is_own = _is_own(node)
    counts = {} if is_own else followed(node)
    decision, has_rule = _decision(node, counts, is_own)
    for output, layout in zip(node.outputs, decision.gives, strict=True):
        kept = node.type in _KEEP_REPEATED
        facts.layouts[output.name] = layout if kept else not_repeated(layout)
        if not output.shape.is_fully_defined() and (sizes := inferred(node, output)) is not None:
            facts.sizes[output.name] = sizes
    for index, found in {**counts, **decision.numbers}.items():
        facts.numbers[node.outputs[index].name] = found
    return Decided(op, decision, node.has, has_rule)


def _decision(node: Node, counts: dict[int, np.ndarray], is_own: bool) -> tuple[Decision, bool]:
    makes_lists = any(tensor.dtype == tf.variant for tensor in node.outputs)
    is_same = node.has and all(has == SAME for has in node.has)
    if is_same and not makes_lists and not node.has_mark:
        return node.whole(), True
    rule = RULES.get(node.type)
    if is_own:
        return _own(node, rule), True
    made = (not makes_lists and _of_sizes(node, counts)) or (rule and rule(node))
    if made is None:
        return node.whole(), not node.rows
    return made, True


def _is_own(node: Node) -> bool:
    """Whether an op has what ranks have made of their own samples; its shape may be known."""
    is_of_shape = node.type in _SIZES and all(t.shape.is_fully_defined() for t in node.inputs)
    return OWN in node.has and not is_of_shape


def _own(node: Node, rule: Rule | None) -> Decision:
    """Of ops that have values of which each rank has its own."""
    if node.type in _KNOW_OWN and rule is not None:
        return rule(node) or node.whole()
    if node.op.op_def.is_stateful or any(tensor.dtype == tf.resource for tensor in node.inputs):
        return node.whole()
    if node.parts:
        # Gradients of what a rank has made of its own samples: each op is linear in these.
        return Decision(node.has, node.each(PART))
    if not node.rows:
        wants: list[Layout] = [OWN if has == OWN else SAME for has in node.has]
        return Decision(wants, node.each(OWN))
    has, node.has = node.has, [SAME if each == OWN else each for each in node.has]
    with_rows = rule(node) if rule is not None else None
    node.has = has
    if node.type not in ALL or with_rows is None or with_rows.emit is not None:
        return node.whole()
    wants = [
        OWN if each == OWN and want == SAME else want
        for each, want in zip(has, with_rows.wants, strict=True)
    ]
    return Decision(wants, with_rows.gives)


#: Ops whose rules know of values of which each rank has its own.
_KNOW_OWN = (
    "IdentityN", "TntAllreduce", "TntMove", "AssignVariableOp", "AssignAddVariableOp",
    "AssignSubVariableOp",
)  # fmt: skip

#: Ops that know of rows that are all alike whether what they give are such rows.
_KEEP_REPEATED = ALL | {"Fill", "Tile", "BroadcastTo"}

#: Ops that give sizes of what they are given.
_SIZES = ("Shape", "ShapeN", "Size", "VariableShape")


def _of_sizes(node: Node, counts: dict[int, np.ndarray]) -> Decision | None:
    """Of ops that compute with the numbers that shapes are made of."""
    if node.type == "Rank":
        return node.as_it_is(SAME)
    if node.type == "Range" and node.has_sizes and counts.get(0) is None:
        return node.whole()  # numbers of samples; each rank takes its own where it needs them
    if node.type in _SIZES:
        gives = [_layout(counts.get(i)) for i in range(len(node.outputs))]
        if any(isinstance(has, Rows) for has in node.has):
            return Decision(node.has, gives)
        return node.as_it_is(SAME)
    if not node.has_sizes or not all(has in (SAME, SIZE) for has in node.has):
        return None
    if node.type == "BroadcastGradientArgs":
        # Not by the sizes of a run: where there is one sample, or none, nothing is repeated.
        return _constants(node, counts) if is_broadcast_known(node) else node.whole()
    if not counts or not all(tensor.dtype in (tf.int32, tf.int64) for tensor in node.outputs):
        return None
    gives = [_layout(counts.get(i)) for i in range(len(node.outputs))]
    if SIZE in gives or node.type in _MOVED:
        return Decision(node.has, gives)
    return _constants(node, counts) or node.whole()


def _constants(node: Node, counts: dict[int, np.ndarray]) -> Decision | None:
    """What an op gives, as constants; None: it hangs on more than the shapes that are known."""
    if len(counts) < len(node.outputs) or any(
        numbers(each.ravel()) is None for each in counts.values()
    ):
        return None

    def emit(_: object, inputs: list[tf.Tensor]) -> list[tf.Tensor]:
        return [
            tf.constant([each.factor for each in counts[i].ravel()], tensor.dtype, counts[i].shape)
            for i, tensor in enumerate(node.outputs)
        ]

    return Decision(node.has, node.each(SAME), emit)


#: Ops of sizes that only take some of them, or put them together.
_MOVED = ("StridedSlice", "Slice", "GatherV2", "Pack", "ConcatV2", "Unpack", "Identity", "Reshape",
          "ExpandDims", "Squeeze", "Cast", "StopGradient", "EnsureShape")  # fmt: skip


def _layout(counts: np.ndarray | None) -> Layout:
    return SIZE if depends_on_rows(counts) else SAME
