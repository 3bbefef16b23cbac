"""What a step has changed of state, where each rank makes its own step, and how that combines."""

from __future__ import annotations

from typing import Any

import keras
import tensorflow as tf

from tnt_notebook.errors import ModelError
from tnt_notebook.keras.state import tensor_of
from tnt_notebook.parallel.exchange.named import name_of
from tnt_notebook.parallel.step.combine import RULES, Change, known_rules, told_rule
from tnt_notebook.parallel.step.step import Step


def changes_of(step: Step) -> tuple[list[Change], list[Change]]:
    """What a step has done, when it is traced, to the states of metrics, and to others.

    Raises:
        ModelError: nobody has said how what ranks make of some state combines.
    """
    metrics = {id(v) for v in step.model.metrics_variables}
    # Weights that no optimizer is given may follow those that it trains: a moving average of them.
    trained = {id(v) for v in step.exchanged if v.trainable} - metrics
    assigned = {id(v): v for v in step.assigned if id(v) not in trained}
    rules = known_rules(step.model) | dict.fromkeys(step.drawn, "same")
    for key, variable in assigned.items():
        if key not in rules:
            told = told_rule(variable, of_metric=key in metrics)
            rules[key] = told or _found(step, variable, key in metrics)
    changes = [Change(v, step.before[key], rules[key]) for key, v in assigned.items()]
    return (
        [change for change in changes if id(change.variable) in metrics],
        [change for change in changes if id(change.variable) not in metrics],
    )


def _found(step: Step, variable: keras.Variable, of_metric: bool) -> str:
    if of_metric and only_adds(step.graph, tensor_of(variable)):
        return "sum"
    raise ModelError(
        f"The training step assigns {variable.path}, and with the exchange "
        f"{name_of(step.exchange)} each rank has what its own samples make of it: no rule says how "
        "to combine them. Give one before training: tnt.combine(variable, rule), with one of "
        f"{', '.join(map(repr, RULES))}, or use an exchange in which ranks run steps together."
    )


def only_adds(graph: Any, variable: tf.Variable) -> bool:
    """Whether all that a graph does to a variable is to add to it."""
    if tf.executing_eagerly():
        return False  # in Python nobody can tell
    handle = graph.capture(variable.handle)
    assigning = [op for op in handle.consumers() if op.type.startswith("Assign")]
    others = [
        op for op in handle.consumers() if op not in assigning and op.type != "ReadVariableOp"
    ]
    return not others and all(_adds(op, handle) for op in assigning)


def _adds(op: tf.Operation, handle: tf.Tensor) -> bool:
    if op.type == "AssignAddVariableOp":
        return True
    made = _before(op.inputs[1])
    reads = [_before(tensor) for tensor in made.inputs] if made.type in ("AddV2", "Add") else []
    return any(each.type == "ReadVariableOp" and each.inputs[0] is handle for each in reads)


def _before(tensor: tf.Tensor) -> tf.Operation:
    """What a value comes from, whatever it has been called since."""
    while tensor.op.type in ("Identity", "Cast", "EnsureShape"):
        tensor = tensor.op.inputs[0]
    return tensor.op
