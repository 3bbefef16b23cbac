"""From the layout in which a value was made to that in which a layer takes it.

In this order: summands are added up; what is cut otherwise than wanted, and wanted whole, is
gathered; blocks are taken of what is whole; last, in one exchange, blocks become other blocks, or
get a halo.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import tensorflow as tf

from tnt_notebook.parallel.layers.boxes import Box, Range, blocks
from tnt_notebook.parallel.layers.layout import Demand, Layout
from tnt_notebook.parallel.layers.moves import (
    Move,
    deposit,
    fetch,
    gathered,
    rows_of,
    shared,
    sliced,
    total,
)
from tnt_notebook.parallel.layers.ranks import MeshRanks


def converted(
    x: tf.Tensor,
    shape: Sequence[int | None],
    layout: Layout,
    demand: Demand,
    ranks: MeshRanks,
    label: str,
) -> tf.Tensor:
    """A value as a layer takes it, from this rank's part of it.

    Args:
        x: this rank's part.
        shape: of the whole value; known of dimensions that are cut.
        label: what it is, for messages.
    """
    work = _Conversion(x, shape, layout, demand, ranks, label)
    work.add_up()
    work.gather()
    work.share()
    work.slice()
    work.exchange()
    return work.x


class _Conversion:
    def __init__(
        self,
        x: tf.Tensor,
        shape: Sequence[int | None],
        layout: Layout,
        demand: Demand,
        ranks: MeshRanks,
        label: str,
    ) -> None:
        self.x, self._shape, self._ranks, self._label = x, shape, ranks, label
        self._mesh, self._demand = ranks.mesh, demand
        self._partial = layout.partial
        self._axes = layout.axes  # as it is now, by dimension
        self._rows = dict(demand.rows)
        self._shared: set[str] = set()  # axes over which gradients are added up already

    def add_up(self) -> None:
        """Sums of blocks, where blocks are wanted; sums of the whole elsewhere."""
        wanted = {axis: dim for dim, axis in self._demand.splits}
        rest = set(self._partial)
        for axis in self._mesh.names:
            dim = wanted.get(axis)
            if axis in self._partial and dim is not None and dim not in self._axes:
                self.x = deposit(self.x, self._move_of(dim, axis, "sum"))
                self._axes[dim] = axis
                rest.discard(axis)
        if rest:
            self.x = total(self.x, self._ranks.group(rest), self._label)

    def gather(self) -> None:
        wanted = {axis for _, axis in self._demand.splits}
        for dim, axis in sorted(self._axes.items()):
            if axis not in wanted:
                divides = axis in self._demand.divides
                move = self._move_of(dim, axis, "gather")
                self.x = fetch(self.x, move) if divides else gathered(self.x, move)
                del self._axes[dim]
                if divides:
                    self._shared.add(axis)

    def share(self) -> None:
        """What is whole, for work that is divided."""
        cut = {axis for _, axis in self._demand.splits} | set(self._axes.values())
        axes = self._demand.divides - cut - self._shared
        # Rows that overlap, of what is whole: their gradients are added up like those of all.
        axes |= {axis for dim, axis in self._overlapping()}
        if axes:
            self.x = shared(self.x, self._ranks.group(axes), self._label)

    def slice(self) -> None:
        overlapping = dict(self._overlapping())
        now = set(self._axes.values())
        for dim, axis in self._demand.splits:
            if axis in now:
                continue
            if dim in overlapping:
                rows = self._rows[dim][self._ranks.place[axis]]
                self.x = rows_of(self.x, dim, rows, self._size(dim), self._demand.fill)
                del self._rows[dim]
            else:
                self.x = sliced(self.x, self._move_of(dim, axis, "gradient"))
            self._axes[dim] = axis

    def exchange(self) -> None:
        wanted = self._demand.axes
        dims = {d for d in self._axes.keys() | wanted.keys() if self._axes.get(d) != wanted.get(d)}
        dims |= {d for d, rows in self._rows.items() if list(rows) != self._blocks(d, wanted[d])}
        if not dims:
            return
        names = {axes[d] for axes in (self._axes, wanted) for d in dims if d in axes}
        have, need = (
            self._boxes(names, self._axes, dims, {}),
            self._boxes(names, wanted, dims, self._rows),
        )
        sizes = {dim: self._size(dim) for dim in dims}
        group = self._ranks.group(names)
        move = Move(have, need, sizes, group, f"exchange of {self._label}", self._demand.fill)
        self.x = fetch(self.x, move)

    # What they need ---------------------------------------------------------------------------

    def _overlapping(self) -> list[tuple[int, str]]:
        """Dimensions of which rows are wanted that are no blocks, and that are whole as yet."""
        now = set(self._axes.values())
        return [
            (dim, axis)
            for dim, axis in self._demand.splits
            if dim in self._rows
            and axis not in now
            and list(self._rows[dim]) != self._blocks(dim, axis)
        ]

    def _size(self, dim: int) -> int:
        size = self._shape[dim]
        assert size is not None
        return size

    def _blocks(self, dim: int, axis: str) -> list[Range]:
        return blocks(self._size(dim), self._mesh.along(axis))

    def _move_of(self, dim: int, axis: str, what: str) -> Move:
        """Blocks of one dimension, and all of it."""
        size = self._size(dim)
        cut = self._blocks(dim, axis)
        have = [{dim: rows} for rows in cut]
        need = [{dim: (0, size)} for _ in cut]
        group = self._ranks.group([axis])
        return Move(have, need, {dim: size}, group, f"{what} of {self._label}")

    def _boxes(
        self,
        names: Collection[str],
        axes: dict[int, str],
        dims: Collection[int],
        rows: dict[int, tuple[Range, ...]],
    ) -> list[Box]:
        """Of each rank along some axes, its box of these dimensions."""
        result: list[Box] = []
        for rank in self._mesh.line(self._ranks.over.rank, names):
            place = self._mesh.place(rank)
            box: dict[int, Range] = {}
            for dim in dims:
                axis = axes.get(dim)
                if axis is None:
                    box[dim] = (0, self._size(dim))
                else:
                    box[dim] = (rows.get(dim) or self._blocks(dim, axis))[place[axis]]
            result.append(box)
        return result
