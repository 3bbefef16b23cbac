"""Which block of a value each rank of a mesh has."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tnt_notebook.parallel.layers.boxes import Range

#: By dimension, the axis of the mesh that cuts it.
Splits = tuple[tuple[int, str], ...]


def splits_of(axes: Mapping[int, str]) -> Splits:
    return tuple(sorted(axes.items()))


@dataclass(frozen=True)
class Layout:
    """Of a value: along each axis of the mesh its ranks have blocks of one dimension, or summands
    of the whole, or all the same.

    Attributes:
        splits: which dimension an axis cuts; a dimension is cut by one axis at most.
        partial: the axes over which it is still to be summed up.

    A gradient has the layout of its value, but where that is partial: there it is the same.
    """

    splits: Splits = ()
    partial: frozenset[str] = frozenset()

    @property
    def axes(self) -> dict[int, str]:
        """By dimension, the axis that cuts it."""
        return dict(self.splits)

    @property
    def dims(self) -> dict[str, int]:
        """By axis, the dimension that it cuts."""
        return {axis: dim for dim, axis in self.splits}

    def __str__(self) -> str:
        parts = [f"{dim}: {axis}" for dim, axis in self.splits]
        parts += [f"summands over {axis}" for axis in sorted(self.partial)]
        return "; ".join(parts) or "whole"


#: On every rank the same.
WHOLE = Layout()


@dataclass(frozen=True)
class InputLayout:
    """The layout in which a layer takes a value.

    Attributes:
        splits: which dimension an axis cuts.
        rows: of a dimension that is cut otherwise than :func:`~.boxes.blocks` does, which rows each
            rank along its axis takes; they may overlap, and go beyond the ends.
        divides: the axes along which ranks do different parts of the layer's work: the gradient of
            what they take whole is the sum of what each computes.
        fill: what stands beyond the ends.
        around: of dimensions that no axis cuts, how many rows are to stand before the first one and
            after the last.
    """

    splits: Splits = ()
    rows: tuple[tuple[int, tuple[Range, ...]], ...] = ()
    divides: frozenset[str] = frozenset()
    fill: float = 0.0
    around: tuple[tuple[int, Range], ...] = ()

    @property
    def axes(self) -> dict[int, str]:
        """By dimension, the axis that cuts it."""
        return dict(self.splits)

    @property
    def dims(self) -> dict[str, int]:
        """By axis, the dimension that it cuts."""
        return {axis: dim for dim, axis in self.splits}
