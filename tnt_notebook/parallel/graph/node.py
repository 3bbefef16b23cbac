"""An op of a traced step as rules see it, and what a rule says of it."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from tnt_notebook.keras.copied import functions_of, mark_of
from tnt_notebook.parallel.graph.counts import Count, number, numbers
from tnt_notebook.parallel.graph.layouts import PART, SAME, SIZE, Layout, Rows


class Decision(NamedTuple):
    """What an op makes of what ranks have.

    Attributes:
        wants: in which layout it needs each of its inputs.
        gives: in which layout each of its outputs is then.
        emit: what runs in its place, a function of a :class:`~.emission.Emission` and the inputs as
            wanted, that gives the outputs; None: the op itself.
        numbers: that are known of outputs, by their indices.
        meets: whether ranks tell each other something in what runs.
        of_samples: whether it gives zeros where a rank has no samples, and computes a borrowed one.
    """

    wants: Sequence[Layout]
    gives: Sequence[Layout]
    emit: Callable[[Any, list[tf.Tensor]], list[tf.Tensor]] | None = None
    numbers: Mapping[int, np.ndarray] = {}
    meets: bool = False
    of_samples: bool = False


#: They tell apart sizes of the same name in a graph and in those of its functions.
_keys = itertools.count()

#: Sizes of dimensions; None: only a run tells.
Shape = list[int | None]


class Facts:
    """What is known of the values of a graph while it is gone through, by the names of tensors.

    Attributes:
        decide: decides of the ops of a function.
        layouts: what ranks have of them.
        numbers: small arrays of whole numbers, each a :class:`Count` or None; of a list those of
            each of its elements.
        sizes: of dimensions, each a :class:`Count` that has no samples in it, or None: where
            TensorFlow knows less. It does not look through gradients of broadcasts, and has no name
            for a size that only a run tells.
        divides_parts: whether parts are not added up before they are divided. Of a number that is
            divided by zero, a part that is zero makes no infinity then.
    """

    def __init__(
        self, decide: Callable[..., tuple[Facts, Any]], divides_parts: bool = False
    ) -> None:
        self.decide, self.divides_parts = decide, divides_parts
        self.key = f"{next(_keys)}|"
        self.layouts: dict[str, Layout] = {}
        self.numbers: dict[str, np.ndarray] = {}
        self.sizes: dict[str, list[Count | None]] = {}

    def shape(self, tensor: tf.Tensor) -> Shape | None:
        """Of what a rank has; None: not even of how many dimensions is known."""
        if tensor.name in self.sizes:
            sizes = self.sizes[tensor.name]
            return [size.factor if size and size.is_number else None for size in sizes]
        shape: Shape | None = None if tensor.shape.rank is None else tensor.shape.as_list()
        return shape

    def layout(self, tensor: tf.Tensor) -> Layout:
        return self.layouts[tensor.name]

    def dims(self, tensor: tf.Tensor) -> list[Count] | None:
        """The shape of the whole value; None: not even of how many dimensions is known."""
        shape = self.shape(tensor)
        if shape is None:
            return None
        layout, named = self.layouts[tensor.name], self.sizes.get(tensor.name, [])
        found = []
        for dim, size in enumerate(shape):
            if isinstance(layout, Rows) and layout.dim == dim:
                found.append(_samples_between(layout))
            elif size is not None:
                found.append(number(size))
            else:
                own = named[dim] if named else None
                found.append(own or Count(of=(f"{self.key}{tensor.name}/{dim}",)))
        return found

    def known_sizes(self, tensor: tf.Tensor) -> list[Count | None] | None:
        """The same, without those in which samples count."""
        dims = self.dims(tensor)
        return None if dims is None else [None if each.rows else each.bare for each in dims]


class Node:
    """An op, and what is known of its inputs."""

    def __init__(self, op: tf.Operation, facts: Facts) -> None:
        self.op, self.facts = op, facts
        self.type: str = op.type
        self.inputs: list[tf.Tensor] = list(op.inputs)
        self.outputs: list[tf.Tensor] = list(op.outputs)
        self.has: list[Layout] = [facts.layout(tensor) for tensor in self.inputs]

    @property
    def rows(self) -> list[tuple[int, Rows]]:
        """The inputs of which ranks have rows."""
        return [(i, has) for i, has in enumerate(self.has) if isinstance(has, Rows)]

    @property
    def parts(self) -> list[int]:
        """The inputs of which ranks have parts."""
        return [i for i, has in enumerate(self.has) if has == PART]

    @property
    def has_sizes(self) -> bool:
        return SIZE in self.has

    def attr(self, name: str) -> Any:
        value = self.op.get_attr(name)
        return value.decode() if isinstance(value, bytes) else value

    def rank(self, index: int) -> int | None:
        """How many dimensions an input has."""
        shape = self.facts.shape(self.inputs[index])
        return None if shape is None else len(shape)

    def counts(self, index: int) -> np.ndarray | None:
        """The numbers in an input, as :class:`Count` or None each; None: they are not followed."""
        return self.facts.numbers.get(self.inputs[index].name)

    def static(self, index: int) -> list[int] | None:
        """The numbers in an input, where all are the same in each run."""
        counts = self.counts(index)
        return None if counts is None else numbers(np.ravel(counts))

    def dims(self, index: int) -> list[Count] | None:
        return self.facts.dims(self.inputs[index])

    def decide(
        self, graph: Any, layouts: Sequence[Layout], given: Sequence[tf.Tensor | None]
    ) -> tuple[Facts, Any]:
        """Decides of what a function does that the op calls: see :func:`~.analysis.of_function`."""
        return self.facts.decide(graph, layouts, given, self.facts)

    @property
    def functions(self) -> list[Any]:
        """The graphs of the functions that the op calls: branches, or a loop's condition and body;
        none where it is of a kind that has no rule for them."""
        return functions_of(self.op)

    @property
    def has_mark(self) -> bool:
        """Whether the op, or one in a function that it calls, says something of a step."""
        return _has_mark(self.op)

    def axes(self, index: int, of: int) -> list[int] | None:
        """The dimensions of an input that another one names, sorted."""
        rank, named = self.rank(of), self.static(index)
        if rank is None or named is None:
            return None
        return sorted({axis % rank for axis in named}) if rank else []

    def as_it_is(self, *gives: Layout) -> Decision:
        """The op itself, on what ranks have. ``gives``: of the outputs, or of all of them."""
        return Decision(self.has, gives if len(gives) == len(self.outputs) else self.each(gives[0]))

    def each(self, layout: Layout) -> list[Layout]:
        return [layout] * len(self.outputs)

    def whole(self) -> Decision:
        """The op itself, on whole values."""
        return Decision([SAME] * len(self.inputs), self.each(SAME))


def _has_mark(op: tf.Operation) -> bool:
    inside = (each for graph in functions_of(op) for each in graph.get_operations())
    return bool(mark_of(op)) or any(map(_has_mark, inside))


def _samples_between(layout: Rows) -> Count:
    """The size of the dimension that has the samples."""
    size = layout.outer.times(Count(rows=1)).times(layout.inner)
    return Count(size.factor, size.of, size.rows, layout.outer)
