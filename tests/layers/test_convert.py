"""From any layout of a value to any that a layer takes: the numbers, and the gradient."""

import itertools
from collections.abc import Iterator

import numpy as np
import pytest
import tensorflow as tf

from tnt_notebook import comm
from tnt_notebook.comm import channels, ops
from tnt_notebook.parallel.layers.boxes import blocks
from tnt_notebook.parallel.layers.convert import converted
from tnt_notebook.parallel.layers.layout import InputLayout, Layout, splits_of
from tnt_notebook.parallel.layers.ranks import MeshRanks
from tnt_notebook.plan.mesh import Mesh

SHAPE = (2, 7, 5, 3)  # of which a mesh may cut 1 and 2
FILL = -2.0
AROUND = (1, 2)
#: Of an array with FILL around it.
MARGIN = 4
#: Of channels: what was sent last may still be on its way.
PARTS = 32


def layouts(mesh: Mesh) -> Iterator[Layout]:
    for each in itertools.product(("whole", "partial", 1, 2), repeat=len(mesh.inner)):
        axes = dict(zip(mesh.inner, each, strict=True))
        cut = [dim for dim in each if isinstance(dim, int)]
        if len(set(cut)) == len(cut):
            splits = splits_of({dim: a for a, dim in axes.items() if isinstance(dim, int)})
            yield Layout(splits, frozenset(a for a, how in axes.items() if how == "partial"))


def input_layouts(mesh: Mesh) -> Iterator[InputLayout]:
    """Those that cut, with and without a halo, and with what stands around the other dimensions."""
    for each in itertools.product(("alike", "divides", 1, 2), repeat=len(mesh.inner)):
        axes = dict(zip(mesh.inner, each, strict=True))
        cut = {dim: axis for axis, dim in axes.items() if isinstance(dim, int)}
        if len(cut) < sum(isinstance(dim, int) for dim in each):
            continue
        divides = frozenset(axis for axis, how in axes.items() if how != "alike")
        halos = tuple(
            (dim, tuple((b - 1, e + 2) for b, e in blocks(SHAPE[dim], mesh.along(axis))))
            for dim, axis in cut.items()
        )
        for rows, fringe in itertools.product({(), halos}, (False, True)):
            around = tuple((dim, AROUND) for dim in (1, 2) if dim not in cut and fringe)
            yield InputLayout(splits_of(cut), rows, divides, FILL, around)


def box_of(layout: Layout | InputLayout, mesh: Mesh, place: dict[str, int]) -> tuple[slice, ...]:
    """What a rank has of an array with FILL around it, or takes of it."""
    rows = dict(getattr(layout, "rows", ()))
    around = dict(getattr(layout, "around", ()))
    index = []
    for dim, size in enumerate(SHAPE):
        begin, end = 0, size
        if (axis := layout.axes.get(dim)) is not None:
            begin, end = (rows.get(dim) or blocks(size, mesh.along(axis)))[place[axis]]
        before, after = around.get(dim, (0, 0))
        index.append(slice(begin - before + MARGIN, end + after + MARGIN))
    return tuple(index)


def surrounded(x: np.ndarray, fill: float) -> np.ndarray:
    return np.pad(x, MARGIN, constant_values=fill)


def drawn(shape: tuple[int, ...], seed: list[int]) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape)


def of_work(input_layout: InputLayout, mesh: Mesh, place: dict[str, int]) -> np.ndarray:
    """The gradient of what a rank takes: its own, where it does another part of the work."""
    box = box_of(input_layout, mesh, place)
    seed = [place[axis] for axis in sorted(input_layout.divides)]
    return drawn(tuple(rows.stop - rows.start for rows in box), [3, *seed])


def of_all_work(input_layout: InputLayout, mesh: Mesh) -> np.ndarray:
    """The gradient of the whole value."""
    result = surrounded(np.zeros(SHAPE), 0.0)
    divided = sorted(input_layout.divides)
    for at in itertools.product(*(range(mesh.along(axis)) for axis in divided)):
        place = dict.fromkeys(mesh.names, 0) | dict(zip(divided, at, strict=True))
        result[box_of(input_layout, mesh, place)] += of_work(input_layout, mesh, place)
    return result[(slice(MARGIN, -MARGIN),) * len(SHAPE)]


def summand(layout: Layout, mesh: Mesh, place: dict[str, int]) -> np.ndarray:
    """Of the whole value, what a rank has before it is added up."""
    axes = sorted(layout.partial)
    count = mesh.along_all(axes)
    others = [drawn(SHAPE, [2, i]) for i in range(1, count)]
    number = 0
    for axis in axes:
        number = number * mesh.along(axis) + place[axis]
    return [drawn(SHAPE, [1]) - sum(others), *others][number]


def conversions_tried(mesh: Mesh) -> int:
    """Makes all conversions, and raises where one is wrong. Gives how many there are."""
    ranks, value = MeshRanks(comm.world(), mesh), surrounded(drawn(SHAPE, [1]), FILL)
    place, tried = ranks.place, 0
    for layout, input_layout in itertools.product(layouts(mesh), input_layouts(mesh)):
        here, there = box_of(layout, mesh, place), box_of(input_layout, mesh, place)
        x = tf.constant(surrounded(summand(layout, mesh, place), 0.0)[here])
        with ops.channels(channels.TRAINING.part(tried % PARTS, PARTS)), tf.GradientTape() as tape:
            tape.watch(x)
            y = converted(x, SHAPE, layout, input_layout, ranks, "value")
            product = tf.reduce_sum(y * of_work(input_layout, mesh, place))
            gradient = tape.gradient(product, x)
        where = f"{layout} -> {input_layout}, rank {ranks.over.rank}"
        close(y, value[there], where)
        close(
            gradient, surrounded(of_all_work(input_layout, mesh), 0.0)[here], f"gradient: {where}"
        )
        tried += 1
    ranks.over.barrier()
    return tried


def close(a: tf.Tensor, b: np.ndarray, where: str) -> None:
    np.testing.assert_allclose(a, b, 1e-12, 1e-12, err_msg=where)


@pytest.mark.parametrize("mesh", [Mesh(a=2), Mesh(a=3), Mesh(a=2, b=2)], ids=str)
def test_conversions(ranks, mesh):
    (tried, *_) = ranks.run(mesh.size, conversions_tried, mesh)
    assert tried > 30
