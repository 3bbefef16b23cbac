"""From the layout in which a value was made to that in which a layer takes it, as data.

A conversion is a list of steps, decided here from shapes alone. They are carried out by
:mod:`.convert`, and counted by :mod:`.traffic`. In this order: summands are added up; what is cut
otherwise than wanted, and wanted whole, is gathered; blocks are taken of what is whole; last, in
one exchange, blocks become other blocks, or get a halo, and in other dimensions what stands around
them.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto

from tnt_notebook.parallel.layers.boxes import Box, Range, blocks
from tnt_notebook.parallel.layers.layout import InputLayout, Layout, Splits, splits_of
from tnt_notebook.plan.mesh import Mesh


class Kind(Enum):
    """What a step does to a value, and to its gradient on the way back."""

    SUM = auto()
    """Summands become their sum; back, every rank has the same gradient."""
    SHARE = auto()
    """What all have stays; back, gradients of divided work are added up."""
    REDUCE_SCATTER = auto()
    """Summands become blocks of their sum; back, blocks are gathered."""
    GATHER = auto()
    """Blocks become everything, for work that all do alike; back, each keeps its block."""
    GATHER_TO_DIVIDE = auto()
    """Blocks become everything, for work that is divided; back, blocks of the sum."""
    SLICE = auto()
    """What all have becomes blocks; back, they are gathered."""
    ROWS = auto()
    """What all have becomes rows that overlap, or go beyond the ends: nothing is exchanged."""
    HALO = auto()
    """Blocks get rows of others; back, these are sent home and added up."""
    ALL_TO_ALL = auto()
    """Blocks become other blocks; back, the same the other way."""
    PAD = auto()
    """Rows are put around: nothing is exchanged."""

    @property
    def words(self) -> str:
        """What it is called in the view and in plans."""
        return _WORDS[self]


_WORDS = {
    Kind.SUM: "sum", Kind.SHARE: "sum", Kind.REDUCE_SCATTER: "reduce-scatter",
    Kind.GATHER: "gather", Kind.GATHER_TO_DIVIDE: "gather", Kind.SLICE: "slice",
    Kind.ROWS: "slice", Kind.HALO: "halo exchange", Kind.ALL_TO_ALL: "all-to-all",
    Kind.PAD: "padding",
}  # fmt: skip


@dataclass(frozen=True)
class Step:
    """One step of a conversion.

    Attributes:
        axes: of the mesh, along which ranks exchange.
        cut: the dimensions that axes cut before it.
        rows: of those that are cut otherwise than :func:`~.boxes.blocks` does, which rows each rank
            along its axis has.
        sizes: of the dimensions that boxes are about.
        have, need: of each rank along the axes, its box before and after.
        around: of PAD, how many rows are put before the first and after the last.
    """

    kind: Kind
    axes: tuple[str, ...]
    cut: Splits
    rows: Mapping[int, Sequence[Range]] = field(default_factory=dict)
    sizes: Mapping[int, int] = field(default_factory=dict)
    have: tuple[Box, ...] = ()
    need: tuple[Box, ...] = ()
    around: Mapping[int, Range] = field(default_factory=dict)


def conversion_of(
    shape: Sequence[int | None], layout: Layout, input_layout: InputLayout, mesh: Mesh
) -> list[Step]:
    """What is done to a value of one layout for a layer that takes it in another; nothing where
    they fit.

    Args:
        shape: of the whole value; known of dimensions that are cut, or have something around.
    """
    conversion = _Conversion(shape, layout, input_layout, mesh)
    conversion.add_up(layout.partial)
    conversion.gather()
    conversion.share()
    conversion.slice()
    conversion.exchange()
    conversion.pad()
    return conversion.steps


class _Conversion:
    """The steps so far, and how the value is cut after them."""

    def __init__(
        self, shape: Sequence[int | None], layout: Layout, input_layout: InputLayout, mesh: Mesh
    ) -> None:
        self.steps: list[Step] = []
        self._shape, self._input_layout, self._mesh = shape, input_layout, mesh
        self._axes = layout.axes
        self._rows, self._around = dict(input_layout.rows), dict(input_layout.around)
        self._taken: dict[int, Sequence[Range]] = {}  # rows of dimensions that ROWS has cut
        self._added_up: set[str] = set()  # axes over which gradients are added up already

    def add_up(self, partial: Collection[str]) -> None:
        """Sums of blocks, where blocks are wanted; sums of the whole elsewhere."""
        wanted, rest = self._input_layout.dims, set(partial)
        for axis in self._mesh.names:
            dim = wanted.get(axis)
            if axis in rest and dim is not None and dim not in self._axes:
                self._add_blocks(Kind.REDUCE_SCATTER, dim, axis)
                self._axes[dim] = axis
                rest.discard(axis)
        if rest:
            self._add(Kind.SUM, rest)

    def gather(self) -> None:
        wanted, then = self._input_layout.dims, self._input_layout.axes
        for dim, axis in sorted(self._axes.items()):
            # An axis that cuts nothing as yet is to cut it: then nobody else may.
            gives_way = then.get(dim, axis) not in self._axes.values()
            if axis not in wanted or gives_way:
                divides = axis in self._input_layout.divides and axis not in wanted
                self._add_blocks(Kind.GATHER_TO_DIVIDE if divides else Kind.GATHER, dim, axis)
                del self._axes[dim]
                if divides:
                    self._added_up.add(axis)

    def share(self) -> None:
        """What is whole, for work that is divided; and rows that overlap, of what is whole: their
        gradients are added up like those of all."""
        cut = {*self._input_layout.dims, *self._axes.values()}
        axes = self._input_layout.divides - cut - self._added_up
        axes |= {axis for _, axis in self._overlapping()}
        if axes:
            self._add(Kind.SHARE, axes)

    def slice(self) -> None:
        overlapping, now = dict(self._overlapping()), set(self._axes.values())
        for dim, axis in self._input_layout.splits:
            if axis in now:
                continue
            if dim in overlapping:
                rows = self._rows.pop(dim)
                self._add(Kind.ROWS, [axis], need=[{dim: own} for own in rows])
                self._taken[dim] = rows
            else:
                self._add_blocks(Kind.SLICE, dim, axis)
            self._axes[dim] = axis

    def exchange(self) -> None:
        wanted = self._input_layout.axes
        moved = {d for d in self._axes.keys() | wanted.keys() if self._axes.get(d) != wanted.get(d)}
        halos = {d for d, rows in self._rows.items() if list(rows) != self._blocks(d, wanted[d])}
        dims = moved | halos
        if not dims:
            return
        names = {axes[d] for axes in (self._axes, wanted) for d in dims if d in axes}
        have = self._boxes(names, self._axes, dims, {})
        need = self._boxes(names, wanted, dims, self._rows)
        # Of a tensor that is copied anyway, no other copy is made for these.
        for dim, (before, after) in self._around.items():
            size = self._size(dim)
            have = [{dim: (0, size)} | box for box in have]  # it may be cut as yet
            need = [box | {dim: (-before, size + after)} for box in need]
        self._add(Kind.ALL_TO_ALL if moved else Kind.HALO, names, have, need)
        self._around.clear()

    def pad(self) -> None:
        if self._around:
            cut = splits_of(self._axes)
            self.steps.append(Step(Kind.PAD, (), cut, self._taken, around=self._around))

    def _add(
        self,
        kind: Kind,
        axes: Collection[str],
        have: Sequence[Box] = (),
        need: Sequence[Box] = (),
    ) -> None:
        sizes = {dim: self._size(dim) for dim in (need[0] if need else ())}
        cut, taken, along = splits_of(self._axes), dict(self._taken), tuple(sorted(axes))
        self.steps.append(Step(kind, along, cut, taken, sizes, tuple(have), tuple(need)))

    def _add_blocks(self, kind: Kind, dim: int, axis: str) -> None:
        """Blocks of one dimension, and all of it."""
        have = [{dim: rows} for rows in self._blocks(dim, axis)]
        self._add(kind, [axis], have, [{dim: (0, self._size(dim))} for _ in have])

    def _overlapping(self) -> list[tuple[int, str]]:
        """Dimensions of which rows are wanted that are no blocks, and that are whole as yet."""
        now = set(self._axes.values())
        return [
            (dim, axis)
            for dim, axis in self._input_layout.splits
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

    def _boxes(
        self,
        names: Collection[str],
        axes: Mapping[int, str],
        dims: Collection[int],
        rows: Mapping[int, Sequence[Range]],
    ) -> list[dict[int, Range]]:
        """Of each rank along some axes, its box of these dimensions."""
        result = []
        for rank in self._mesh.line(0, names):
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
