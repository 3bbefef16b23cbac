"""A traced step as ranks run it together.

The step is traced on this rank's samples, as if there were no others. Its graph is gone through
once (:mod:`.analysis`), and written again (:mod:`.emission`) with a sum over ranks wherever what a
rank has is a part, and a whole value is needed. So what comes out is what one process computes with
all samples. Xu et al. ("GSPMD: General and Scalable Parallelization for ML Computation Graphs",
2021) do the same in a compiler.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from tnt_notebook.comm import Communicator, ops
from tnt_notebook.keras.copied import Copier, captured, kept_alive, taken_along
from tnt_notebook.parallel.graph.analysis import Decided, decided, of_function
from tnt_notebook.parallel.graph.counts import Count
from tnt_notebook.parallel.graph.emission import Emission, Here, Meeting, emitted
from tnt_notebook.parallel.graph.layouts import LATER, PART, SAME, Layout, Rows, meets
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
        self._over = over

    def first(self, value: tf.Tensor) -> tf.Tensor:
        # By the same ops on all ranks: on a mesh the pass of another axis goes through them.
        return tf.where(tf.constant(self._over.rank == 0), value, tf.zeros_like(value))

    def sums(self, values: list[tf.Tensor]) -> list[tf.Tensor]:
        """In one message for what is small, and one each for what is large and waits for itself."""
        if any(value.dtype.is_complex for value in values):
            sums = self.sums([_real(value) for value in values])
            return [tf.bitcast(s, v.dtype) if v.dtype.is_complex else s
                    for s, v in zip(sums, values, strict=True)]  # fmt: skip
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
        if value.dtype.is_complex:
            return tf.bitcast(self.gathered(_real(value)), value.dtype)
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


def _real(value: tf.Tensor) -> tf.Tensor:
    """Complex numbers as pairs, along a new last dimension."""
    return tf.bitcast(value, value.dtype.real_dtype) if value.dtype.is_complex else value


class Given(NamedTuple):
    """What a rank has of an argument of a step.

    Attributes:
        each: how many rows it has for each sample, a scalar, int64; None: one.
    """

    value: tf.Tensor
    layout: Layout
    each: tf.Tensor | None = None


class Followed(NamedTuple):
    """A traced step that has been gone through.

    Attributes:
        inputs: its arguments, without what it takes from around it.
        returned: what it returns, and in which layout that is wanted.
    """

    traced: Any
    inputs: list[tf.Tensor]
    facts: Facts
    decisions: list[Decided]
    returned: list[tuple[tf.Tensor, Layout]]


def followed(
    traced: Any,
    layouts: Sequence[Layout],
    kept: Collection[tf.Variable] = (),
    returned: Layout = SAME,
    several: Collection[int] = (),
    later: Collection[tf.Variable] = (),
    divides_parts: bool = False,
    alike: Iterable[Sequence[tuple[int, int]]] = (),
) -> Followed:
    """Goes through a traced step.

    Args:
        traced: a concrete function, traced with sizes of batches left open.
        layouts: what ranks have of its arguments, flattened.
        several: the arguments that have more than one row for each sample, by place; how many is
            the size of a value by the name of :func:`rows_of`.
        later: variables that become the sum of what ranks assign, when the step has ended.
        divides_parts: see :class:`~.node.Facts`.
        alike: dimensions of arguments, each group of one size: places, and dimensions of these.
        kept: variables of which each rank keeps a part.
        returned: how what it returns is wanted.
    """
    graph, facts = traced.graph, Facts(of_function, divides_parts)
    of_variables: dict[int, Layout] = {id(v.handle): PART for v in kept}
    of_variables |= {id(v.handle): LATER for v in later}
    for value, own in captured(graph):
        facts.layouts[own.name] = of_variables.get(id(value), SAME)
    inputs = [tensor for tensor in graph.inputs if tensor.name not in facts.layouts]
    for place, (own, layout) in enumerate(zip(inputs, layouts, strict=True)):
        if place in several and isinstance(layout, Rows):
            layout = Rows(layout.dim, inner=Count(of=(f"{facts.key}{rows_of(own)}/0",)))
        facts.layouts[own.name] = layout
    for group in alike:
        sizes = [facts.known_sizes(inputs[place]) or [] for place, _ in group]
        for (place, dim), own in zip(group, sizes, strict=True):
            own[dim] = sizes[0][group[0][1]]
            facts.sizes[inputs[place].name] = own
    decisions = decided(_needed(graph), facts)
    outputs = [(tensor, returned) for tensor in map(_returned, graph.outputs)]
    return Followed(traced, inputs, facts, decisions, outputs)


def written(
    step: Followed,
    values: dict[str, tf.Tensor],
    here: Here,
    meeting: Meeting,
    beside: Sequence[tf.Tensor] = (),
    known: Mapping[str, tf.Tensor] = {},
) -> tuple[list[tf.Tensor], list[tf.Tensor]]:
    """Writes a step into the function that is being traced.

    Args:
        values: what stands for its arguments, by their names.
        here: which samples are this rank's.
        beside: parts of numbers whose sums are wanted beside, as soon as ranks meet.
        known: values of the step that are whole already, by names.

    Returns:
        What it returns, and the sums.
    """
    graph = step.traced.graph
    outside = {own.name: taken_along(value) for value, own in captured(graph)}
    emission = Emission(
        step.facts, Copier(graph), here, meeting, {**outside, **values}, known=known
    )
    # Under names that no op of the step has.
    names = {op.name for op in graph.get_operations()}
    beside = [tf.identity(number, name="beside_the_step") for number in beside]
    assert not names.intersection(number.op.name for number in beside)
    for number in beside:
        emission.has_part(number)
    wanted = [*step.returned, *((number, SAME) for number in beside)]
    found = emitted(step.decisions, wanted, emission)
    kept_alive(step.traced)
    count = len(step.returned)
    return found[:count], found[count:]


def run_together(
    traced: Any,
    given: Sequence[Given],
    here: Here,
    over: Communicator,
    summed: Sequence[tf.Tensor] = (),
    kept: Collection[tf.Variable] = (),
    returned: Layout = SAME,
) -> tuple[Any, list[tf.Tensor], list[Decided]]:
    """Goes through a traced step, and writes it into the function that is being traced.

    Args:
        traced: a concrete function, traced with sizes of batches left open.
        given: its arguments, flattened.
        here: which samples are this rank's.
        summed: numbers whose sums over ranks are wanted beside, as soon as ranks meet.
        kept: variables of which each rank keeps a part.
        returned: how what it returns is wanted.

    Returns:
        What it returns; the sums; and what was decided of each op.
    """
    outside = {own.name for _, own in captured(traced.graph)}
    inputs = [tensor for tensor in traced.graph.inputs if tensor.name not in outside]
    values = {own.name: each.value for own, each in zip(inputs, given, strict=True)}
    several = {i: each.each for i, each in enumerate(given) if each.each is not None}
    # The size of a dimension is a number of its own, which has no other place.
    values |= {rows_of(inputs[i]): tf.zeros([each]) for i, each in several.items()}
    step = followed(traced, [each.layout for each in given], kept, returned, several)
    outputs, sums = written(step, values, here, Together(over), summed)
    return _packed(traced.structured_outputs, outputs), sums, step.decisions


def rows_of(argument: tf.Tensor) -> str:
    """The name of a value that has as many rows as an argument has for each sample."""
    return f"{argument.name}/rows"


def ancestors(operations: Iterable[tf.Operation]) -> set[str]:
    """The names of ops, and of those whose values they are computed from."""
    found, left = set[str](), list(operations)
    while left:
        op = left.pop()
        if op.name not in found:
            found.add(op.name)
            left += [tensor.op for tensor in op.inputs]
    return found


def _needed(graph: Any) -> list[tf.Operation]:
    """The ops that a step needs for what it returns, and for what it does beside."""
    every = [op for op in graph.get_operations() if op.type != "Placeholder"]
    effects = [op for op in every if op.op_def.is_stateful and op.type != "ReadVariableOp"]
    needed: set[str] = set()
    left = [*effects, *(_returned(tensor).op for tensor in graph.outputs)]
    while left:
        op = left.pop()
        if op.name not in needed:
            needed.add(op.name)
            left += [tensor.op for tensor in op.inputs]
            # Nobody waits for a value that nobody needs.
            left += [each for each in op.control_inputs if each.type != "ReadVariableOp"]
    return [op for op in every if op.name in needed]


def gathered(decisions: Sequence[Decided]) -> dict[str, int]:
    """For which ops samples of all ranks are brought together, and how many bytes a sample."""
    found: dict[str, int] = {}
    for each in decisions:
        for tensor, has, want in zip(each.op.inputs, each.has, each.decision.wants, strict=True):
            if isinstance(has, Rows) and meets(has, want):
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
