"""Puts into the trace how long parts of a step take that is built as a graph."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import tensorflow as tf

from tnt_notebook.comm import Communicator, ops
from tnt_notebook.telemetry import activities


def input_timed(
    run: Callable[[Any], dict[str, Any]], over: Communicator
) -> Callable[[Any], dict[str, Any]]:
    """A step that says, too, when it is traced, and how long it waits for its batch."""

    def run_timed(batch: Any) -> dict[str, Any]:
        if tf.inside_function():
            activities.begin("trace")
        begin = ops.clock(over=over)  # waits for nothing
        leaves = tf.nest.flatten(batch, expand_composites=True)
        with tf.control_dependencies([leaf for leaf in leaves if leaf is not None]):
            arrived = ops.clock(begin, "input", over=over)
        with tf.control_dependencies([arrived]):
            leaves = [leaf if leaf is None else tf.identity(leaf) for leaf in leaves]
        return run(tf.nest.pack_sequence_as(batch, leaves, expand_composites=True))

    return run_timed


def tell_when_ready(over: Communicator, gradients: Sequence[Any]) -> None:
    """Says when the step has computed them, where what is exchanged is not what it computes."""
    with tf.control_dependencies(tf.nest.flatten(gradients)):
        now = ops.clock(over=over)
    ops.clock(now, "ready", over=over)


def tell_waiting(over: Communicator, own: Sequence[tf.Tensor], others: Sequence[tf.Tensor]) -> None:
    """Says how long a rank that has its own weights waits for those of other ranks."""
    with tf.control_dependencies([*own]):
        begin = ops.clock(over=over)
    with tf.control_dependencies([begin, *others]):
        ops.clock(begin, "answer", over=over)


@contextlib.contextmanager
def timed(kind: str, over: Communicator, after: Sequence[Any]) -> Iterator[None]:
    """Times what is made inside, as an event of a kind: from when `after` (tensors, or
    tf.IndexedSlices) is there until its last change of a variable."""
    leaves = tf.nest.flatten(list(after), expand_composites=True)
    with tf.control_dependencies(leaves):
        begin = ops.clock(over=over)
    if tf.executing_eagerly():
        yield
        ops.clock(begin, kind, over=over)
        return
    graph = tf.compat.v1.get_default_graph()
    before = len(graph.get_operations())
    yield
    made = graph.get_operations()[before:]
    changing = [op for op in made if op.op_def.is_stateful and op.type != "ReadVariableOp"]
    with tf.control_dependencies(changing):
        ops.clock(begin, kind, over=over)
