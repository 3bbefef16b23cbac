"""What conversions move, in numbers: the same steps as in :mod:`.convert`, without tensors."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from tnt_notebook.parallel.layers.boxes import Box, Range, blocks, common
from tnt_notebook.parallel.layers.layout import Demand, Layout
from tnt_notebook.plan.mesh import Mesh

#: Where the size of a dimension is not known before there are values.
UNKNOWN = 64


@dataclass(frozen=True)
class Traffic:
    """One step of a conversion.

    Attributes:
        what: "sum", "reduce-scatter", "gather", "slice", "halo exchange" or "all-to-all".
        axes: of the mesh, along which ranks exchange.
        there, back: numbers that a rank sends at most: of the value, and of its gradient.
    """

    what: str
    axes: tuple[str, ...]
    there: float
    back: float

    @property
    def messages(self) -> int:
        """Directions in which something is exchanged."""
        return (self.there > 0) + (self.back > 0)


def numbers_of(
    shape: Sequence[int | None],
    samples: int,
    mesh: Mesh,
    axes: Mapping[int, str],
    rows: Mapping[int, Sequence[Range]] | None = None,
) -> int:
    """How many numbers the largest block of a value has.

    Args:
        samples: of a batch.
        axes: by dimension that is cut, the axis that cuts it.
        rows: of dimensions of which ranks have other rows than their blocks, these.
    """
    product = 1
    for dim, size in enumerate(sizes_of(shape, samples)):
        if rows and dim in rows:
            product *= max(end - begin for begin, end in rows[dim])
        else:
            product *= -(-size // mesh.along(axes[dim])) if dim in axes else size
    return product


def sizes_of(shape: Sequence[int | None], samples: int) -> list[int]:
    """A shape in numbers."""
    return [
        size if size is not None else UNKNOWN if dim else samples for dim, size in enumerate(shape)
    ]


def traffic_of(
    shape: Sequence[int | None], samples: int, layout: Layout, demand: Demand, mesh: Mesh
) -> list[Traffic]:
    """What is done to a value of one layout for a layer that takes it in another; nothing where
    they fit."""
    return _Conversion(shape, samples, layout, demand, mesh).steps()


class _Conversion:
    def __init__(
        self,
        shape: Sequence[int | None],
        samples: int,
        layout: Layout,
        demand: Demand,
        mesh: Mesh,
    ) -> None:
        self._sizes = sizes_of(shape, samples)
        self._layout, self._demand, self._mesh = layout, demand, mesh
        self._axes, self._rows = layout.axes, dict(demand.rows)
        self._here = math.prod(self._sizes) / mesh.along_all([*self._axes.values()])
        self._found: list[Traffic] = []

    def steps(self) -> list[Traffic]:
        self._add_up()
        added_up = self._gather()
        self._share(added_up)
        self._slice()
        self._exchange()
        return self._found

    def _add(self, what: str, axes: Sequence[str], there: float, back: float) -> None:
        self._found.append(Traffic(what, tuple(axes), there, back))

    def _add_up(self) -> None:
        wanted, rest = self._demand.dims, set(self._layout.partial)
        for axis in self._mesh.names:
            dim = wanted.get(axis)
            if axis in rest and dim is not None and dim not in self._axes:
                others = self._mesh.along(axis) - 1
                self._here /= others + 1
                self._add("reduce-scatter", [axis], self._here * others, self._here * others)
                self._axes[dim] = axis
                rest.discard(axis)
        if rest:
            self._add("sum", sorted(rest), self._allreduced(rest), 0.0)

    def _gather(self) -> set[str]:
        """Gives the axes over which gradients are added up already."""
        added_up = set()
        wanted, then = self._demand.dims, self._demand.axes
        for dim, axis in sorted(self._axes.items()):
            gives_way = then.get(dim, axis) not in self._axes.values()
            if axis not in wanted or gives_way:
                sent = self._here * (self._mesh.along(axis) - 1)
                divides = axis in self._demand.divides and axis not in wanted
                self._add("gather", [axis], sent, sent if divides else 0.0)
                self._here *= self._mesh.along(axis)
                del self._axes[dim]
                added_up |= {axis} if divides else set()
        return added_up

    def _share(self, added_up: set[str]) -> None:
        cut = {*self._demand.dims, *self._axes.values()}
        axes = (self._demand.divides - cut - added_up) | {axis for _, axis in self._overlapping()}
        if axes:
            self._add("sum", sorted(axes), 0.0, self._allreduced(axes))

    def _slice(self) -> None:
        overlapping, now = dict(self._overlapping()), set(self._axes.values())
        for dim, axis in self._demand.splits:
            if axis in now:
                continue
            others = self._mesh.along(axis) - 1
            self._here /= others + 1
            if dim in overlapping:
                del self._rows[dim]
            else:
                self._add("slice", [axis], 0.0, self._here * others)
            self._axes[dim] = axis

    def _exchange(self) -> None:
        wanted = self._demand.axes
        moved = {d for d in self._axes.keys() | wanted.keys() if self._axes.get(d) != wanted.get(d)}
        halos = {d for d, rows in self._rows.items() if list(rows) != self._blocks(d, wanted[d])}
        dims = moved | halos
        if not dims:
            return
        names = sorted({axes[d] for axes in (self._axes, wanted) for d in dims if d in axes})
        have = self._boxes(names, self._axes, dims, {})
        need = self._boxes(names, wanted, dims, self._rows)
        others = {d: size for d, size in enumerate(self._sizes) if d not in dims}
        cut = self._mesh.along_all([axis for d, axis in self._axes.items() if d in others])
        sent = math.prod(others.values()) / cut * _most_sent(have, need)
        self._add("all-to-all" if moved else "halo exchange", names, sent, sent)

    def _allreduced(self, axes: Collection[str]) -> float:
        ranks = self._mesh.along_all(axes)
        return 2 * self._here * (ranks - 1) / ranks

    def _overlapping(self) -> list[tuple[int, str]]:
        now = set(self._axes.values())
        return [
            (dim, axis)
            for dim, axis in self._demand.splits
            if dim in self._rows
            and axis not in now
            and list(self._rows[dim]) != self._blocks(dim, axis)
        ]

    def _blocks(self, dim: int, axis: str) -> list[Range]:
        return blocks(self._sizes[dim], self._mesh.along(axis))

    def _boxes(
        self,
        names: Sequence[str],
        axes: Mapping[int, str],
        dims: set[int],
        rows: Mapping[int, Sequence[Range]],
    ) -> list[Box]:
        """Of each rank along some axes, its box of these dimensions."""
        result: list[Box] = []
        for rank in self._mesh.line(0, names):
            place = self._mesh.place(rank)
            box = {}
            for dim in sorted(dims):
                axis = axes.get(dim)
                of_all = rows.get(dim) or (self._blocks(dim, axis) if axis else ())
                box[dim] = of_all[place[axis]] if axis else (0, self._sizes[dim])
            result.append(box)
        return result


def _most_sent(have: Sequence[Box], need: Sequence[Box]) -> int:
    """The most numbers that a rank has and others need."""
    most = 0
    for source, there in enumerate(have):
        sent = 0
        for target, wanted in enumerate(need):
            if target != source:
                shared = (common(there[dim], rows) for dim, rows in wanted.items())
                sent += math.prod(end - begin for begin, end in shared)
        most = max(most, sent)
    return most
