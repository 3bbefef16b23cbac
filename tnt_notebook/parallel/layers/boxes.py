"""Blocks of values as numbers: who has which rows of a dimension, and what goes to whom.

A box says, for some dimensions of a value, from which index up to which; of the others it has all.
Slices, gathers, halos and other cuts are all the same: what each rank has, and what it needs. Rows
before 0 and after the end are nobody's: they are filled.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

#: From an index up to another one, which is not in it.
Range = tuple[int, int]

#: By dimension.
Box = Mapping[int, Range]


def blocks(size: int, parts: int) -> list[Range]:
    """A dimension cut into nearly equal parts, larger ones first, as numpy.array_split does."""
    small, larger = divmod(size, parts)
    ends = [(i + 1) * small + min(i + 1, larger) for i in range(parts)]
    return list(zip([0, *ends], ends, strict=False))


def common(a: Range, b: Range) -> Range:
    """The rows that are in both; an empty range where there are none."""
    begin = max(a[0], b[0])
    return begin, max(begin, min(a[1], b[1]))


def beyond(rows: Range, size: int) -> Range:
    """How many rows are before the first of a dimension, and how many after its last."""
    begin, end = rows
    return max(0, min(end, 0) - begin), max(0, end - max(begin, size))


@dataclass(frozen=True)
class Piece:
    """What one rank needs of what another one, or itself, has."""

    source: int
    target: int
    box: Box


def pieces(have: Sequence[Box], need: Sequence[Box]) -> list[Piece]:
    """What goes to whom, by the ranks' indices; have and need are of the same dimensions."""
    found = []
    for target, wanted in enumerate(need):
        for source, there in enumerate(have):
            box = {dim: common(there[dim], rows) for dim, rows in wanted.items()}
            if all(begin < end for begin, end in box.values()):
                found.append(Piece(source, target, box))
    return found
