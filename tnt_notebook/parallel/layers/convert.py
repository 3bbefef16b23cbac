"""From the layout in which a value was made to that in which a layer takes it.

In this order: summands are added up; what is cut otherwise than wanted, and wanted whole, is
gathered; blocks are taken of what is whole; last, in one exchange, blocks become other blocks, or
get a halo, and in other dimensions what stands around them.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Any

import tensorflow as tf

from tnt_notebook.parallel.layers.boxes import Range, blocks
from tnt_notebook.parallel.layers.layout import Demand, Layout
from tnt_notebook.parallel.layers.moves import (
    Move,
    deposit,
    fetch,
    gathered,
    padded,
    rows_of,
    shared,
    sliced,
    total,
)
from tnt_notebook.parallel.layers.ranks import MeshRanks
from tnt_notebook.telemetry.conversions import label_of


def converted(
    x: Any,
    shape: Sequence[int | None],
    layout: Layout,
    demand: Demand,
    ranks: MeshRanks,
    label: str,
) -> Any:
    """A value as a layer takes it, from this rank's part of it.

    Args:
        x: this rank's part.
        shape: of the whole value; known of dimensions that are cut.
        label: the layer that takes it, for messages and the view.
    """
    if isinstance(x, tf.SparseTensor):  # an input of the model, which all ranks take whole
        return x
    work = _Conversion(x, shape, ranks, label, demand, layout.partial, layout.axes)
    work.add_up()
    work.gather()
    work.share()
    work.slice()
    work.exchange()
    work.pad()
    return work.x


@dataclass
class _Conversion:
    """A value on its way.

    Attributes:
        axes: that cut it as it is now, by dimension.
        shared: axes over which gradients are added up already.
    """

    x: tf.Tensor
    shape: Sequence[int | None]
    ranks: MeshRanks
    label: str
    demand: Demand
    partial: frozenset[str]
    axes: dict[int, str]
    shared: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.rows = dict(self.demand.rows)
        self.around = dict(self.demand.around)

    def add_up(self) -> None:
        """Sums of blocks, where blocks are wanted; sums of the whole elsewhere."""
        wanted = self.demand.dims
        rest = set(self.partial)
        for axis in self.ranks.mesh.names:
            dim = wanted.get(axis)
            if axis in self.partial and dim is not None and dim not in self.axes:
                self.x = deposit(self.x, self._move_of(dim, axis, "reduce-scatter"))
                self.axes[dim] = axis
                rest.discard(axis)
        if rest:
            self.x = total(self.x, self.ranks.group(rest), label_of("sum", self.label))

    def gather(self) -> None:
        wanted, then = self.demand.dims, self.demand.axes
        for dim, axis in sorted(self.axes.items()):
            # An axis that cuts nothing as yet is to cut it: then nobody else may.
            gives_way = then.get(dim, axis) not in self.axes.values()
            if axis not in wanted or gives_way:
                divides = axis in self.demand.divides and axis not in wanted
                move = self._move_of(dim, axis, "gather")
                self.x = fetch(self.x, move) if divides else gathered(self.x, move)
                del self.axes[dim]
                if divides:
                    self.shared.add(axis)

    def share(self) -> None:
        """What is whole, for work that is divided."""
        cut = {*self.demand.dims, *self.axes.values()}
        axes = self.demand.divides - cut - self.shared
        # Rows that overlap, of what is whole: their gradients are added up like those of all.
        axes |= {axis for dim, axis in self._overlapping()}
        if axes:
            self.x = shared(self.x, self.ranks.group(axes), label_of("sum", self.label))

    def slice(self) -> None:
        overlapping = dict(self._overlapping())
        now = set(self.axes.values())
        for dim, axis in self.demand.splits:
            if axis in now:
                continue
            if dim in overlapping:
                rows = self.rows[dim][self.ranks.place[axis]]
                self.x = rows_of(self.x, dim, rows, self._size(dim), self.demand.fill)
                del self.rows[dim]
            else:
                self.x = sliced(self.x, self._move_of(dim, axis, "slice"))
            self.axes[dim] = axis

    def exchange(self) -> None:
        wanted = self.demand.axes
        dims = {d for d in self.axes.keys() | wanted.keys() if self.axes.get(d) != wanted.get(d)}
        dims |= {d for d, rows in self.rows.items() if list(rows) != self._blocks(d, wanted[d])}
        if not dims:
            return
        names = {axes[d] for axes in (self.axes, wanted) for d in dims if d in axes}
        have, need = (
            self._boxes(names, self.axes, dims, {}),
            self._boxes(names, wanted, dims, self.rows),
        )
        # Of a tensor that is copied anyway, no other copy is made for these.
        for dim, (before, after) in self.around.items():
            size = self._size(dim)
            have = [{dim: (0, size)} | box for box in have]  # it may be cut as yet
            need = [box | {dim: (-before, size + after)} for box in need]
        sizes = {dim: self._size(dim) for dim in (*dims, *self.around)}
        self.around.clear()
        group = self.ranks.group(names)
        is_halo = {dim: self.axes.get(dim) for dim in dims} == {d: wanted.get(d) for d in dims}
        what = label_of("halo exchange" if is_halo else "all-to-all", self.label)
        move = Move(have, need, sizes, group, what, self.demand.fill)
        self.x = fetch(self.x, move)

    def pad(self) -> None:
        if self.around:
            self.x = padded(self.x, self.around, self.demand.fill)

    # What they need ---------------------------------------------------------------------------

    def _overlapping(self) -> list[tuple[int, str]]:
        """Dimensions of which rows are wanted that are no blocks, and that are whole as yet."""
        now = set(self.axes.values())
        return [
            (dim, axis)
            for dim, axis in self.demand.splits
            if dim in self.rows
            and axis not in now
            and list(self.rows[dim]) != self._blocks(dim, axis)
        ]

    def _size(self, dim: int) -> int:
        size = self.shape[dim]
        assert size is not None
        return size

    def _blocks(self, dim: int, axis: str) -> list[Range]:
        return blocks(self._size(dim), self.ranks.mesh.along(axis))

    def _move_of(self, dim: int, axis: str, what: str) -> Move:
        """Blocks of one dimension, and all of it."""
        size = self._size(dim)
        cut = self._blocks(dim, axis)
        have = [{dim: rows} for rows in cut]
        need = [{dim: (0, size)} for _ in cut]
        group = self.ranks.group([axis])
        return Move(have, need, {dim: size}, group, label_of(what, self.label))

    def _boxes(
        self,
        names: Collection[str],
        axes: dict[int, str],
        dims: Collection[int],
        rows: dict[int, tuple[Range, ...]],
    ) -> list[dict[int, Range]]:
        """Of each rank along some axes, its box of these dimensions."""
        result = []
        for rank in self.ranks.mesh.line(self.ranks.over.rank, names):
            place = self.ranks.mesh.place(rank)
            box: dict[int, Range] = {}
            for dim in dims:
                axis = axes.get(dim)
                if axis is None:
                    box[dim] = (0, self._size(dim))
                else:
                    box[dim] = (rows.get(dim) or self._blocks(dim, axis))[place[axis]]
            result.append(box)
        return result
