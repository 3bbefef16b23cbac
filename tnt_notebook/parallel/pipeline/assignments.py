"""What a traced call assigns to variables, as its graph tells."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import keras
import tensorflow as tf

from tnt_notebook.keras.copied import captured
from tnt_notebook.keras.state import tensor_of
from tnt_notebook.parallel.graph.layouts import LATER
from tnt_notebook.parallel.graph.step import Followed

#: What an op names a value that it passes on.
_PASSED = ("Identity", "Cast", "EnsureShape", "StopGradient")
#: Of two values, which the op gives, and which a reduction.
_EXTREMES = {"Maximum": ("Max", "max"), "Minimum": ("Min", "min")}


def assigned_in(traced: Any, variables: Iterable[keras.Variable]) -> dict[int, keras.Variable]:
    """The variables that a function assigns, by id."""
    held = {id(tensor_of(v).handle): v for v in variables}
    found = {}
    for value, own in captured(traced.graph):
        if id(value) in held and any(op.type.startswith("Assign") for op in own.consumers()):
            found[id(held[id(value)])] = held[id(value)]
    return found


def assigns(step: Followed, op: tf.Operation, variable: keras.Variable) -> bool:
    """Whether an op assigns a variable."""
    handle = tensor_of(variable).handle
    return any(
        value is handle and own is op.inputs[0] for value, own in captured(step.traced.graph)
    )


def _before(tensor: tf.Tensor) -> tf.Operation:
    while tensor.op.type in _PASSED:
        tensor = tensor.op.inputs[0]
    return tensor.op


def extreme_of(op: tf.Operation) -> str:
    """Whether an assignment keeps the largest or smallest number that there has been; empty: it
    does not."""
    made = _before(op.inputs[1])
    if made.type not in _EXTREMES:
        return ""
    reduction, kind = _EXTREMES[made.type]
    kinds = {each.type for each in map(_before, made.inputs)}
    return kind if kinds == {"ReadVariableOp", reduction} else ""


def is_kept_extreme(op: tf.Operation) -> bool:
    """Whether nothing but a variable that keeps extremes is given what an op makes."""
    left = [consumer for tensor in op.outputs for consumer in tensor.consumers()]
    while left:
        each = left.pop()
        if each.type in _PASSED or each.type in _EXTREMES:
            left += [consumer for tensor in each.outputs for consumer in tensor.consumers()]
        elif each.type != "AssignVariableOp" or not extreme_of(each):
            return False
    return True


def read_again(step: Followed) -> list[tf.Operation]:
    """Reads of variables after they have been assigned, which give a part of what they hold."""
    written_to: set[str] = set()
    found = []
    for each in step.decisions:
        if each.op.type == "ReadVariableOp" and each.op.inputs[0].name in written_to:
            found.append(each.op)
        if each.op.type == "AssignVariableOp" and each.has[0] == LATER:
            written_to.add(each.op.inputs[0].name)
    return found
