"""Conversions as data, over random shapes, layouts and meshes: what the ops of their graphs send,
there and back, is what is estimated. Without ranks: the ops are made, and none runs."""

from collections.abc import Collection
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from tnt_notebook.comm import ops
from tnt_notebook.parallel.layers.boxes import Range, blocks
from tnt_notebook.parallel.layers.convert import converted
from tnt_notebook.parallel.layers.layout import InputLayout, Layout, splits_of
from tnt_notebook.parallel.layers.traffic import traffic_of
from tnt_notebook.plan.mesh import Mesh


class Line(NamedTuple):
    """Ranks of a mesh along some axes, as an op wants to know them; the group's number says which
    axes: a bit for each."""

    rank: int
    size: int
    members: tuple[int, ...]
    id: tuple[int, int]


@dataclass(frozen=True)
class Ranks:
    """A rank in a mesh."""

    mesh: Mesh
    rank: int

    @property
    def place(self) -> dict[str, int]:
        return self.mesh.place(self.rank)

    def group(self, names: Collection[str]) -> Line:
        members = self.mesh.line(self.rank, names)
        number = sum(1 << i for i, name in enumerate(self.mesh.names) if name in names)
        return Line(members.index(self.rank), len(members), members, (0, number))

    def of(self, op: tf.Operation) -> Line:
        number = op.get_attr("group")
        return self.group([name for i, name in enumerate(self.mesh.names) if number >> i & 1])


def ranges(draw: st.DrawFn, size: int, parts: int) -> tuple[Range, ...]:
    """Rows that ranks take: their blocks, with a halo, or any."""
    cut = blocks(size, parts)
    how = draw(st.sampled_from(["halo", "any"]))
    if how == "halo":
        before, after = draw(st.integers(0, 2)), draw(st.integers(0, 2))
        return tuple((begin - before, end + after) for begin, end in cut)
    starts = [draw(st.integers(-2, size - 1)) for _ in cut]
    return tuple((start, start + draw(st.integers(1, size))) for start in starts)


@st.composite
def cases(draw: st.DrawFn) -> tuple[Mesh, tuple[int, ...], Layout, InputLayout]:
    names = draw(st.sampled_from([["a"], ["a", "b"]]))
    mesh = Mesh(**{name: draw(st.integers(2, 3)) for name in names})
    shape = tuple(draw(st.lists(st.integers(3, 9), min_size=2, max_size=4)))
    dims = st.sampled_from(range(len(shape)))

    def splits() -> dict[int, str]:
        return {draw(dims): name for name in names if draw(st.booleans())}

    cut, wanted = splits(), splits()
    partial = {n for n in names if n not in cut.values() and draw(st.booleans())}
    divides = {n for n in names if n in wanted.values() or draw(st.booleans())}
    rows = tuple(
        (dim, ranges(draw, shape[dim], mesh.along(name)))
        for dim, name in sorted(wanted.items())
        if draw(st.booleans())
    )
    around = tuple(
        (dim, (draw(st.integers(0, 2)), 1))
        for dim in range(1, len(shape))
        if dim not in wanted and draw(st.booleans())
    )
    input_layout = InputLayout(splits_of(wanted), rows, frozenset(divides), -1.0, around)
    return mesh, shape, Layout(splits_of(cut), frozenset(partial)), input_layout


def block(shape: tuple[int, ...], layout: Layout, ranks: Ranks) -> list[int]:
    """The shape of what a rank has."""
    sizes = list(shape)
    for dim, axis in layout.splits:
        begin, end = blocks(shape[dim], ranks.mesh.along(axis))[ranks.place[axis]]
        sizes[dim] = end - begin
    return sizes


def sent(op: tf.Operation, ranks: Ranks) -> float:
    """Numbers that a rank sends in an op."""
    line, shape = ranks.of(op), op.inputs[0].shape.as_list()
    if op.type == "TntAllreduce":
        return 2 * np.prod(shape) * (line.size - 1) / line.size
    assert op.type == "TntMove"
    dims, numbers = op.get_attr("dims"), op.get_attr("pieces")
    beside = np.prod([size for dim, size in enumerate(shape) if dim not in dims])
    width, result = 2 + 2 * len(dims), 0.0
    for at in range(0, len(numbers), width):
        source, target, *ends = numbers[at : at + width]
        if source == line.rank != target:
            begins, ends = ends[: len(dims)], ends[len(dims) :]
            result += beside * np.prod(np.subtract(ends, begins))
    return result


def sent_by_ops(
    mesh: Mesh, shape: tuple[int, ...], layout: Layout, input_layout: InputLayout
) -> tuple[list[float], list[float]]:
    """Of each exchange the most numbers that a rank sends: of the value, and of its gradient."""
    there: dict[int, float] = {}
    back: dict[int, float] = {}
    for rank in range(mesh.size):
        ranks = Ranks(mesh, rank)
        with tf.Graph().as_default() as graph, ops.channels():
            x = tf.zeros(block(shape, layout, ranks))
            # Of MeshRanks, which is made by ranks that are there, these are what it asks for.
            y = converted(x, shape, layout, input_layout, ranks, "value")  # type: ignore[arg-type]
            of_value = graph.get_operations()
            tf.gradients(y, x)
        for op in graph.get_operations():
            if (channel := ops.channel_of(op)) is not None:
                most = there if op in of_value else back
                most[channel] = max(most.get(channel, 0.0), sent(op, ranks))
    return sorted(filter(None, there.values())), sorted(filter(None, back.values()))


@settings(max_examples=60)
@given(cases())
def test_what_ops_send_is_what_is_estimated(case):
    ops.library()  # which is loaded outside of graphs
    mesh, shape, layout, input_layout = case
    steps = traffic_of(shape, shape[0], layout, input_layout, mesh)
    there = sorted(step.forward for step in steps if step.forward)
    back = sorted(step.backward for step in steps if step.backward)
    assert sent_by_ops(mesh, shape, layout, input_layout) == (
        pytest.approx(there),
        pytest.approx(back),
    )
