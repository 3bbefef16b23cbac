"""A traced step as ranks run it together.

The step is traced on this rank's samples, as if there were no others. Its graph is gone through
once (:mod:`.analysis`), and written again (:mod:`.emission`) with a sum over ranks wherever what a
rank has is a part, and a whole value is needed. So what comes out is what one process computes with
all samples. Xu et al. ("GSPMD: General and Scalable Parallelization for ML Computation Graphs",
2021) do the same in a compiler.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from tnt_notebook.comm import Communicator, ops
from tnt_notebook.keras.copied import Copier, captured, taken_along
from tnt_notebook.parallel.graph.analysis import Decided, decided, of_function
from tnt_notebook.parallel.graph.emission import Emission, Here, emitted
from tnt_notebook.parallel.graph.layouts import SAME, Layout
from tnt_notebook.parallel.graph.node import Facts


class Together:
    """How the ranks of a communicator meet within a step."""

    def __init__(self, over: Communicator) -> None:
        self._over, self.rank = over, over.rank

    def sums(self, values: list[tf.Tensor]) -> list[tf.Tensor]:
        label = f"sums over samples: {len(values)} values"
        return ops.allreduce(values, label=label, over=self._over)

    def extreme(self, value: tf.Tensor, which: str) -> tf.Tensor:
        label = f"the {which} over samples"
        return ops.allreduce([value], reduction=which, label=label, over=self._over)[0]

    def gathered(self, value: tf.Tensor) -> tf.Tensor:
        return ops.allgather(value, label="samples that meet", over=self._over)


def run_together(
    traced: Any,
    inputs: Sequence[tf.Tensor],
    layouts: Sequence[Layout],
    here: Here,
    over: Communicator,
) -> tuple[Any, list[Decided]]:
    """Writes a traced step into the function that is being traced.

    Args:
        traced: a concrete function, traced with sizes of batches left open.
        inputs: its arguments, flattened.
        layouts: in which layout each of them is.
        here: which samples are this rank's.

    Returns:
        What it returns, whole on each rank, and what was decided of each op.
    """
    graph, facts, values = traced.graph, Facts(of_function), {}
    for value, own in captured(graph):
        values[own.name], facts.layouts[own.name] = taken_along(value), SAME
    own_inputs = [tensor for tensor in graph.inputs if tensor.name not in values]
    for own, given, layout in zip(own_inputs, inputs, layouts, strict=True):
        values[own.name], facts.layouts[own.name] = given, layout
    operations = [op for op in graph.get_operations() if op.type != "Placeholder"]
    decisions = decided(operations, facts)
    emission = Emission(facts, Copier(graph), here, Together(over), values)
    wanted = [(tensor, SAME) for tensor in graph.outputs]
    outputs = emitted(decisions, wanted, emission)
    packed = tf.nest.pack_sequence_as(traced.structured_outputs, outputs, expand_composites=True)
    return packed, decisions
