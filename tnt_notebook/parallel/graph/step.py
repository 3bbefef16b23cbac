"""A traced step as ranks run it together.

The step is traced on this rank's samples, as if there were no others. Its graph is gone through
once (:mod:`.analysis`), and written again (:mod:`.emission`) with a sum over ranks wherever what a
rank has is a part, and a whole value is needed. So what comes out is what one process computes with
all samples. Xu et al. ("GSPMD: General and Scalable Parallelization for ML Computation Graphs",
2021) do the same in a compiler.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from tnt_notebook.comm import Communicator, ops
from tnt_notebook.keras.copied import Copier, captured, kept_alive, taken_along
from tnt_notebook.parallel.graph.analysis import Decided, decided, of_function
from tnt_notebook.parallel.graph.counts import Count
from tnt_notebook.parallel.graph.emission import Emission, Here, emitted
from tnt_notebook.parallel.graph.layouts import PART, SAME, Layout, Rows
from tnt_notebook.parallel.graph.node import Facts

#: Elements up to which sums travel in one message.
_SMALL = 1 << 12


def _sent_as(dtype: tf.DType, is_small: bool) -> tf.DType:
    if dtype.is_floating and is_small:
        return tf.float64
    return tf.int64 if dtype.is_integer and dtype not in ops.DTYPES else dtype


class Together:
    """How the ranks of a communicator meet within a step."""

    def __init__(self, over: Communicator) -> None:
        self._over, self.rank = over, over.rank

    def sums(self, values: list[tf.Tensor]) -> list[tf.Tensor]:
        """In one message for what is small, and one each for what is large and waits for itself."""
        sent, groups = [], dict[str, list[int]]()
        for i, value in enumerate(values):
            size = value.shape.num_elements()
            is_small = size is not None and size <= _SMALL
            sent.append(tf.cast(value, _sent_as(value.dtype, is_small)))
            groups.setdefault(sent[i].dtype.name if is_small else f"alone {i}", []).append(i)
        sums = list(values)
        for group in groups.values():
            label = f"sums over samples: {len(group)} values"
            summed = ops.allreduce([sent[i] for i in group], label=label, over=self._over)
            for i, each in zip(group, summed, strict=True):
                sums[i] = tf.cast(each, values[i].dtype)
        return sums

    def extreme(self, value: tf.Tensor, which: str) -> tf.Tensor:
        label = f"the {which} over samples"
        return ops.allreduce([value], reduction=which, label=label, over=self._over)[0]

    def gathered(self, value: tf.Tensor) -> tf.Tensor:
        if value.dtype == tf.string:
            return self._gathered_texts(value)
        return ops.allgather(value, label="samples that meet", over=self._over)

    def _gathered_texts(self, texts: tf.Tensor) -> tf.Tensor:
        """How long they are, and their bytes one after another."""
        lengths = self.gathered(tf.strings.length(texts))
        joined = tf.strings.reduce_join(tf.reshape(texts, [-1]))
        sent = self.gathered(tf.io.decode_raw(joined, tf.uint8))
        all_bytes = tf.constant([bytes([each]) for each in range(256)])
        whole = tf.strings.reduce_join(tf.gather(all_bytes, tf.cast(sent, tf.int32)))
        sizes = tf.reshape(lengths, [-1])
        begins = tf.cumsum(sizes, exclusive=True)
        return tf.reshape(tf.strings.substr(whole, begins, sizes), tf.shape(lengths))


class Given(NamedTuple):
    """What a rank has of an argument of a step.

    Attributes:
        each: how many rows it has for each sample, a scalar, int64; None: one.
    """

    value: tf.Tensor
    layout: Layout
    each: tf.Tensor | None = None


def run_together(
    traced: Any,
    given: Sequence[Given],
    here: Here,
    over: Communicator,
    summed: Sequence[tf.Tensor] = (),
) -> tuple[Any, list[tf.Tensor], list[Decided]]:
    """Writes a traced step into the function that is being traced.

    Args:
        traced: a concrete function, traced with sizes of batches left open.
        given: its arguments, flattened.
        here: which samples are this rank's.
        summed: numbers whose sums over ranks are wanted beside, as soon as ranks meet.

    Returns:
        What it returns, whole on each rank; the sums; and what was decided of each op.
    """
    graph, facts, values = traced.graph, Facts(of_function), {}
    for value, own in captured(graph):
        values[own.name], facts.layouts[own.name] = taken_along(value), SAME
    own_inputs = [tensor for tensor in graph.inputs if tensor.name not in values]
    for own, (value, layout, each) in zip(own_inputs, given, strict=True):
        values[own.name] = value
        if each is not None and isinstance(layout, Rows):
            # The size of a dimension is a number of its own, which has no other place.
            rows_each = f"{own.name}/rows"
            values[rows_each] = tf.zeros([each])
            layout = Rows(layout.dim, inner=Count(of=(f"{facts.key}{rows_each}/0",)))
        facts.layouts[own.name] = layout
    operations = [op for op in graph.get_operations() if op.type != "Placeholder"]
    decisions = decided(operations, facts)
    emission = Emission(facts, Copier(graph), here, Together(over), values)
    # Under names that no op of the step has.
    names = {op.name for op in graph.get_operations()}
    beside = [tf.identity(number, name="beside_the_step") for number in summed]
    assert not names.intersection(number.op.name for number in beside)
    for number in beside:
        values[number.name], facts.layouts[number.name] = number, PART
    wanted = [(tensor, SAME) for tensor in (*map(_returned, graph.outputs), *beside)]
    found = emitted(decisions, wanted, emission)
    kept_alive(traced)
    outputs, sums = found[: len(graph.outputs)], found[len(graph.outputs) :]
    return _packed(traced.structured_outputs, outputs), sums, decisions


def gathered(decisions: Sequence[Decided]) -> dict[str, int]:
    """For which ops samples of all ranks are brought together, and how many bytes a sample."""
    found: dict[str, int] = {}
    for each in decisions:
        for tensor, has, want in zip(each.op.inputs, each.has, each.decision.wants, strict=True):
            if isinstance(has, Rows) and has != want:
                shape = tensor.shape.as_list() if tensor.shape.rank else []
                sizes = [n for i, n in enumerate(shape) if i != has.dim and n]
                where = each.op.name.split("/")[-2:-1]
                name = f"{each.op.type} of {where[0]}" if where else each.op.type
                found[name] = found.get(name, 0) + math.prod(sizes) * tensor.dtype.size
    return found


def _returned(output: tf.Tensor) -> tf.Tensor:
    """What a function returns, without the op that waits for all that it does beside."""
    return output.op.inputs[0] if output.op.type == "Identity" else output


def _packed(structure: Any, outputs: list[tf.Tensor]) -> Any:
    """Outputs as the function returned them; it may have returned None, too."""
    given = iter(outputs)
    flat = tf.nest.flatten(structure, expand_composites=True)
    every = [None if each is None else next(given) for each in flat]
    return tf.nest.pack_sequence_as(structure, every, expand_composites=True)
