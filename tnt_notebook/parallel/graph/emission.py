"""Writes a step as it was decided: its ops, and between them what ranks tell each other."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import tensorflow as tf

from tnt_notebook.comm import ops
from tnt_notebook.errors import ModelError
from tnt_notebook.keras.copied import Copier
from tnt_notebook.parallel.graph.analysis import Decided
from tnt_notebook.parallel.graph.counts import ONE, Count
from tnt_notebook.parallel.graph.layouts import (
    LATER,
    OWN,
    PART,
    SAME,
    SIZE,
    Layout,
    Listed,
    Rows,
    is_as,
    meets,
)
from tnt_notebook.parallel.graph.node import Facts


class Here(NamedTuple):
    """Which samples of the batch are this rank's; scalars, int64. A rank that has none computes one
    that it has borrowed: not every op computes nothing of nothing.

    Attributes:
        first: the number of the first of them.
        rows: how many they are.
        total: how many all ranks have.
        computed: how many this rank computes.
        has_samples: whether any is this rank's.
    """

    first: tf.Tensor
    rows: tf.Tensor
    total: tf.Tensor
    computed: tf.Tensor
    has_samples: tf.Tensor

    @classmethod
    def of(cls, first: tf.Tensor, rows: tf.Tensor, total: tf.Tensor) -> Here:
        return cls(first, rows, total, tf.maximum(rows, 1), rows > 0)


class Meeting(Protocol):
    """How ranks exchange values within a step; the same calls in the same order on all of them."""

    def first(self, value: tf.Tensor) -> tf.Tensor:
        """A value that all have, on the first; zeros on others."""

    def sums(self, values: list[tf.Tensor]) -> list[tf.Tensor]:
        """The sums over ranks of values."""

    def extreme(self, value: tf.Tensor, which: str) -> tf.Tensor:
        """The largest ("max") or smallest ("min") of the ranks, element by element."""

    def gathered(self, value: tf.Tensor) -> tf.Tensor:
        """The ranks' values one after another, along the first dimension."""


def _anchor(op: tf.Operation) -> tf.Tensor:
    """A value that is there when an op has run."""
    if op.outputs:
        return op.outputs[0]
    with tf.control_dependencies([op]):
        return tf.constant(0)


def _are_consecutive(rows: Rows) -> bool:
    """Whether the entries of a sample are next to each other along the first dimension."""
    return rows.dim == 0 and rows.outer == ONE


def _emptied(each: Decided) -> list[int]:
    """Which outputs of an op are zeros where a rank has no samples: parts that are made of rows,
    and what a rule says."""
    decision = each.decision
    if decision.of_samples:
        return list(range(len(decision.gives)))
    if not any(isinstance(want, Rows) for want in decision.wants):
        return []
    return [index for index, gives in enumerate(decision.gives) if gives == PART]


def conversions(
    decisions: Sequence[Decided], wanted: Sequence[tuple[tf.Tensor, Layout]], facts: Facts
) -> list[tf.Tensor]:
    """The values for which ranks have to tell each other something, each once."""
    needs = [
        (tensor, want)
        for each in decisions
        for tensor, want in zip(each.op.inputs, each.decision.wants, strict=True)
    ]
    met = {t.name: t for t, want in [*needs, *wanted] if meets(facts.layout(t), want)}
    return list(met.values())


def emitted(
    decisions: Sequence[Decided], wanted: Sequence[tuple[tf.Tensor, Layout]], emission: Emission
) -> list[tf.Tensor]:
    """Writes a step into the graph that is being traced, and gives what it returns.

    An op is written after all that ranks tell each other for it; and they tell each other as much
    at a time as is ready.
    """
    levels = _levels(decisions, emission.facts)
    at: dict[int, list[Decided]] = {}
    for each in decisions:
        at.setdefault(levels[each.op.name], []).append(each)
    due: dict[int, dict[str, tf.Tensor]] = {}
    for tensor in conversions(decisions, wanted, emission.facts):
        if not emission.knows(tensor):
            due.setdefault(levels.get(tensor.op.name, 0), {})[tensor.name] = tensor
    for level in range(max([*at, *due, 0]) + 1):
        for each in _in_waves(at.get(level, []), emission):
            emission.write(each)
        emission.meet(list(due.get(level, {}).values()))
    emission.finish()
    return [emission.version(tensor, want) for tensor, want in wanted]


def _levels(decisions: Sequence[Decided], facts: Facts) -> dict[str, int]:
    """How many times ranks have met before an op can run, by its name."""
    levels: dict[str, int] = {}
    for each in decisions:
        before = [levels.get(op.name, 0) for op in each.op.control_inputs]
        for tensor, has, want in zip(each.op.inputs, each.has, each.decision.wants, strict=True):
            before.append(levels.get(tensor.op.name, 0) + meets(has, want))
        levels[each.op.name] = max(before, default=0)
    return levels


def _in_waves(decisions: Sequence[Decided], emission: Emission) -> list[Decided]:
    """The same ops, so that few times copies have to be written before what uses them: each time
    TensorFlow looks at all ops that there are."""
    waiting = {each.op.name for each in decisions if each.decision.emit is None}
    waves: dict[str, int] = {}
    places: list[tuple[int, bool]] = []
    for each in decisions:
        is_copied = emission.is_copied(each)
        before = [op.name for op in (*(t.op for t in each.op.inputs), *each.op.control_inputs)]
        wave = max(
            (waves[name] + (name in waiting and not is_copied) for name in before if name in waves),
            default=0,
        )
        waves[each.op.name] = wave
        places.append((wave, is_copied))
    order = sorted(range(len(decisions)), key=places.__getitem__)
    return [decisions[i] for i in order]


class Emission:
    """What has been written of a step so far.

    Args:
        copier: of the graph that was traced.
        values: what stands for the inputs of that graph, by their names.
        around: of what calls it, where it is a function.
        known: values that are whole already, by names.
    """

    def __init__(
        self,
        facts: Facts,
        copier: Copier,
        here: Here,
        meeting: Meeting,
        values: dict[str, tf.Tensor],
        around: Emission | None = None,
        known: Mapping[str, tf.Tensor] = {},
    ) -> None:
        self.facts, self.here, self._meeting, self._copier = facts, here, meeting, copier
        self._values, self._around = values, around
        self._versions: dict[tuple[str, Layout], tf.Tensor] = {
            (name, SAME): value for name, value in known.items()
        }
        self._waiting: dict[str, Decided] = {}
        self._written: dict[str, Any] = {}
        self._shares: dict[tf.DType, tf.Tensor] = {}

    def has_part(self, value: tf.Tensor) -> None:
        """Of a value beside the step this rank has a part."""
        self._values[value.name], self.facts.layouts[value.name] = value, PART

    def knows(self, tensor: tf.Tensor) -> bool:
        """Whether a value is whole already."""
        return (tensor.name, SAME) in self._versions

    def write(self, each: Decided) -> None:
        """Writes an op, in time."""
        decision, op = each.decision, each.op
        wanted = [] if self.is_copied(each) else zip(op.inputs, decision.wants, strict=True)
        inputs = [self.version(tensor, want) for tensor, want in wanted]
        if decision.emit is None:
            self._waiting[op.name] = each
            return
        with tf.control_dependencies(self._before(op)):
            outputs = decision.emit(self, inputs)
        for i in _emptied(each):
            outputs[i] = self._of_samples(outputs[i])
        self._values |= {own.name: made for own, made in zip(op.outputs, outputs, strict=True)}
        if outputs:  # else TensorFlow keeps the order of its effects
            self._written[op.name] = outputs[0].op

    def is_copied(self, each: Decided) -> bool:
        """Whether an op is copied, and takes what those before it give."""
        return each.decision.emit is None and not any(
            self._is_made(tensor, want)
            for tensor, want in zip(each.op.inputs, each.decision.wants, strict=True)
        )

    def _is_made(self, tensor: tf.Tensor, want: Layout) -> bool:
        """Whether what an op wants is not what the op before it gives."""
        return not is_as(self.facts.layout(tensor), want)

    def _before(self, op: tf.Operation) -> list[tf.Operation]:
        controls = [each for each in op.control_inputs if each.name in self._waiting]
        if controls:
            self._flush()
        return [self._written[c.name] for c in op.control_inputs if c.name in self._written]

    def finish(self) -> None:
        """Writes what is left."""
        self._flush()

    def _flush(self) -> None:
        """Writes the ops that wait to be written."""
        if not self._waiting:
            return
        inputs: dict[str, list[tf.Tensor | None]] = {}
        after: dict[str, list[tf.Tensor]] = {}
        channels = {name: ops.channel_of(each.op) for name, each in self._waiting.items()}
        for name, each in self._waiting.items():
            inputs[name] = [
                self._versions[tensor.name, want]
                if self._is_made(tensor, want)
                else self._values.get(tensor.name)  # None: it is written just now
                for tensor, want in zip(each.op.inputs, each.decision.wants, strict=True)
            ]
            after[name] = [
                _anchor(self._written[control.name])
                for control in each.op.control_inputs
                if control.name in self._written
            ] + [_anchor(earlier) for earlier in ops.earlier_on(channels[name])]
        waiting, self._waiting = self._waiting, {}
        made = self._copier.copy(
            [each.op for each in waiting.values()], inputs, after,
            {name: _emptied(each) for name, each in waiting.items()}, self.here.has_samples,
        )  # fmt: skip
        for each, (copy, outputs) in zip(waiting.values(), made, strict=True):
            self._written[each.op.name] = copy
            ops.copied(copy, channels[each.op.name])
            for own, new in zip(each.op.outputs, outputs, strict=True):
                if new.shape.rank is None:  # an exchange's
                    new.set_shape(own.shape)
                self._values[own.name] = new

    def _of_samples(self, made: tf.Tensor) -> tf.Tensor:
        """What a rank has made of its samples; zeros of a borrowed one."""
        return tf.where(self.here.has_samples, made, tf.zeros((), made.dtype))

    def own(self, tensor: tf.Tensor) -> tf.Tensor:
        """What this rank has of a value."""
        if tensor.name not in self._values:
            self._flush()
        return self._values[tensor.name]

    def version(self, tensor: tf.Tensor, want: Layout) -> tf.Tensor:
        """A value as it is wanted."""
        has = self.facts.layout(tensor)
        if is_as(has, want):
            return self.own(tensor)
        made = self._versions.get((tensor.name, want))
        if made is None:
            made = self._versions[tensor.name, want] = self._converted(tensor, has, want)
        return made

    def _converted(self, tensor: tf.Tensor, has: Layout, want: Layout) -> tf.Tensor:
        if has == LATER:
            raise ModelError(
                f"{tensor.op.name} is changed by an operation that does not assign all of it, and "
                "no rule says how to combine it over micro-batches: assign all of it."
            )
        if isinstance(has, Listed) or (isinstance(want, Listed) and want.element != PART):
            raise ModelError(
                f"The loop around {tensor.op.name} keeps a list of tensors, of which ranks have "
                f"{has} and need {want}, which is not possible. Stack what a loop returns before "
                "it is used twice, or let samples be its tensors' only open dimension."
            )
        if has == SIZE:
            whole = self._whole_size(tensor)
            self._versions[tensor.name, SAME] = whole
        elif has == OWN and want == PART:
            return self._summand(tensor)
        elif has == SAME:
            whole = self.own(tensor)
        else:
            whole = self._versions[tensor.name, SAME]  # ranks have met
        if isinstance(want, Rows):
            return self._cut(whole, want, tensor)
        if want == OWN:
            return whole
        if want in (PART, Listed(PART)):
            return self._meeting.first(whole)
        return whole

    def inside(
        self,
        graph: Any,
        facts: Facts,
        decisions: Sequence[Decided],
        inputs: Sequence[tf.Tensor],
        wanted: Sequence[Layout],
    ) -> list[tf.Tensor]:
        """Writes a function that an op calls, in its place, and gives what it returns."""
        values = {own.name: given for own, given in zip(graph.inputs, inputs, strict=True)}
        emission = Emission(facts, Copier(graph), self.here, self._meeting, values, self)
        return emitted(decisions, list(zip(graph.outputs, wanted, strict=True)), emission)

    # How ranks meet.

    def meet(self, tensors: Sequence[tf.Tensor]) -> None:
        """Makes values whole."""
        parts = [each for each in tensors if self.facts.layout(each) in (PART, OWN)]
        sums = self._meeting.sums([self._summand(each) for each in parts])
        for tensor, total in zip(parts, sums, strict=True):
            self._versions[tensor.name, SAME] = tf.cast(total, tensor.dtype)
        for tensor in tensors:
            layout = self.facts.layout(tensor)
            if isinstance(layout, Rows):
                self._versions[tensor.name, SAME] = self._gathered(self.own(tensor), layout, tensor)

    def _summand(self, tensor: tf.Tensor) -> tf.Tensor:
        """What a rank adds to the one value that all get."""
        own = self.own(tensor)
        if self.facts.layout(tensor) == PART:
            return own
        exact = tf.float64 if own.dtype.is_integer or own.dtype == tf.bool else own.dtype
        # Zero where this rank has no samples, whatever it has made of a borrowed one.
        return tf.math.multiply_no_nan(tf.cast(own, exact), self._share(exact))

    def _share(self, dtype: tf.DType) -> tf.Tensor:
        """This rank's share of the samples."""
        if dtype not in self._shares:
            of_all = tf.cast(self.here.rows, tf.float64) / tf.cast(self.here.total, tf.float64)
            self._shares[dtype] = tf.cast(of_all, dtype)
        return self._shares[dtype]

    def extreme(self, value: tf.Tensor, which: str) -> tf.Tensor:
        """The largest or smallest of the ranks' samples, element by element."""
        least = value.dtype.min if which == "max" else value.dtype.max
        if value.dtype.is_floating:
            least = -math.inf if which == "max" else math.inf
        of_none = tf.fill(tf.shape(value), tf.constant(least, value.dtype))
        return self._meeting.extreme(tf.where(self.here.has_samples, value, of_none), which)

    def total(self, value: tf.Tensor) -> tf.Tensor:
        """The sum of what ranks have made of their samples."""
        made = self._meeting.sums([self._of_samples(value)])[0]
        return tf.cast(made, value.dtype)

    def on_first(self, value: tf.Tensor) -> tf.Tensor:
        """A value that all ranks have, on the first; zeros on others."""
        return self._meeting.first(value)

    def without_borrowed(self, value: tf.Tensor, rows: Rows) -> tf.Tensor:
        """This rank's rows, none of a borrowed sample."""
        return self._taken(value, rows, tf.constant(0, tf.int64), self.here.rows)

    def _gathered(self, value: tf.Tensor, rows: Rows, tensor: tf.Tensor) -> tf.Tensor:
        """Of all ranks' samples the whole value."""
        if _are_consecutive(rows):
            return self._meeting.gathered(self.without_borrowed(value, rows))
        split, back = self._split(value, rows)
        rank = len(self.facts.shape(tensor) or []) + 2
        order = [rows.dim + 1, *(i for i in range(rank) if i != rows.dim + 1)]
        gathered = self._meeting.gathered(tf.transpose(split, order)[: self.here.rows])
        whole = tf.transpose(gathered, sorted(range(rank), key=order.__getitem__))
        return tf.reshape(whole, back(self.here.total))

    def _split(
        self, value: tf.Tensor, rows: Rows
    ) -> tuple[tf.Tensor, Callable[[tf.Tensor], tf.Tensor]]:
        """A value with a dimension for samples alone; and how its shape is with so many of them."""
        shape = tf.shape(value, out_type=tf.int64)
        before, after = shape[: rows.dim], shape[rows.dim + 1 :]
        outer, inner = self.amount(rows.outer), self.amount(rows.inner)
        samples = shape[rows.dim] // (outer * inner)
        split = tf.concat([before, [outer, samples, inner], after], 0)

        def back(count: tf.Tensor) -> tf.Tensor:
            return tf.concat([before, [outer * count * inner], after], 0)

        return tf.reshape(value, split), back

    def _cut(self, whole: tf.Tensor, rows: Rows, tensor: tf.Tensor) -> tf.Tensor:
        """Of a whole value this rank's samples."""
        count = self.here.computed
        first = tf.minimum(self.here.first, self.here.total - count)
        shape = self.facts.shape(tensor)
        if shape is None or shape[rows.dim] is None:
            # Of a dimension that may be of one entry, which is repeated then, only a run tells.
            length = tf.shape(whole, out_type=tf.int64)[rows.dim]
            entries = self.amount(rows.outer.times(rows.inner)) * self.here.total
            is_repeated = (length == 1) & (entries != 1)
            return tf.cond(
                is_repeated, lambda: whole, lambda: self._taken(whole, rows, first, count)
            )
        return self._taken(whole, rows, first, count)

    def _taken(self, whole: tf.Tensor, rows: Rows, first: tf.Tensor, count: tf.Tensor) -> tf.Tensor:
        if _are_consecutive(rows):
            inner = self.amount(rows.inner)
            return whole[first * inner : (first + count) * inner]
        split, back = self._split(whole, rows)
        dim = rows.dim + 1
        taken = tf.gather(split, tf.range(first, first + count), axis=dim)
        return tf.reshape(taken, back(count))

    # Numbers.

    def amount(self, count: Count, whole: bool = False) -> tf.Tensor:
        """A number as a run has it; int64, scalar.

        Args:
            whole: with the samples of all ranks, not of this one.
        """
        result = tf.constant(count.factor, tf.int64)
        for name in count.of:
            result *= self._size(name)
        for _ in range(count.rows):
            result *= self.here.total if whole else self.here.computed
        return result

    def _size(self, name: str) -> tf.Tensor:
        """The size of a dimension, by the name that :meth:`Facts.dims` gave it."""
        if not name.startswith(self.facts.key):
            assert self._around is not None
            return self._around._size(name)
        tensor, _, dim = name.removeprefix(self.facts.key).rpartition("/")
        if tensor not in self._values:
            self._flush()
        return tf.shape(self._values[tensor], out_type=tf.int64)[int(dim)]

    def _whole_size(self, tensor: tf.Tensor) -> tf.Tensor:
        """A size as a number, with the samples of all ranks."""
        counts = self.facts.numbers.get(tensor.name)
        if counts is not None and all(each is not None for each in counts.ravel()):
            amounts = [self.amount(each, whole=True) for each in counts.ravel()]
            return tf.cast(tf.reshape(amounts, counts.shape), tensor.dtype)
        op = tensor.op
        wants = [SAME if has == SIZE else has for has in map(self.facts.layout, op.inputs)]
        inputs = [self.version(each, want) for each, want in zip(op.inputs, wants, strict=True)]
        ((_, outputs),) = self._copier.copy([op], {op.name: inputs})
        made: tf.Tensor = outputs[tensor.value_index]
        return made
