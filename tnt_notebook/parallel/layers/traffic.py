"""What conversions move, in numbers: the steps of :mod:`.conversion`, counted."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from tnt_notebook.parallel.layers.boxes import Box, Range, pieces
from tnt_notebook.parallel.layers.conversion import Kind, Step, conversion_of
from tnt_notebook.parallel.layers.layout import InputLayout, Layout
from tnt_notebook.plan.mesh import Mesh

#: Where the size of a dimension is not known before there are values.
UNKNOWN = 64


@dataclass(frozen=True)
class Traffic:
    """What ranks exchange in one step of a conversion, or inside of a layer.

    Attributes:
        what: "sum", "reduce-scatter", "gather", "slice", "halo exchange" or "all-to-all".
        axes: of the mesh, along which ranks exchange.
        forward, backward: numbers that a rank sends at most: of the value, and of its gradient.
    """

    what: str
    axes: tuple[str, ...]
    forward: float
    backward: float

    @property
    def messages(self) -> int:
        """Directions in which something is exchanged."""
        return (self.forward > 0) + (self.backward > 0)


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


def allreduced(numbers: float, axes: Collection[str], mesh: Mesh) -> float:
    """What a rank sends of so many numbers that are added up along some axes."""
    ranks = mesh.along_all(axes)
    return 2 * numbers * (ranks - 1) / ranks


def traffic_of(
    shape: Sequence[int | None], samples: int, layout: Layout, input_layout: InputLayout, mesh: Mesh
) -> list[Traffic]:
    """What a conversion sends, step by step; nothing where they fit."""
    sizes = sizes_of(shape, samples)
    counted = (
        _counted(step, sizes, mesh) for step in conversion_of(sizes, layout, input_layout, mesh)
    )
    return [one for one in counted if one.messages]


def _counted(step: Step, sizes: Sequence[int], mesh: Mesh) -> Traffic:
    # Of the dimensions that are not exchanged, each rank has its block, or all.
    others = [size if dim not in step.sizes else 1 for dim, size in enumerate(sizes)]
    rows = {dim: own for dim, own in step.rows.items() if dim not in step.sizes}
    numbers = numbers_of(others, 1, mesh, dict(step.cut), rows)
    if step.kind in (Kind.SUM, Kind.SHARE):
        sent = allreduced(numbers, step.axes, mesh)
        there, back = (sent, 0.0) if step.kind is Kind.SUM else (0.0, sent)
    else:
        most = _DIRECTIONS[step.kind](*_most_moved(step.have, step.need))
        there, back = (numbers * moved for moved in most)
    return Traffic(step.kind.words, step.axes, there, back)


#: By kind of step, from what ranks give that go from what they have to what they need, and the
#: other way: what they send of the value, and of its gradient.
_DIRECTIONS = {
    Kind.REDUCE_SCATTER: lambda gives, gets: (gets, gives),
    Kind.GATHER: lambda gives, gets: (gives, 0),
    Kind.GATHER_TO_DIVIDE: lambda gives, gets: (gives, gets),
    Kind.SLICE: lambda gives, gets: (0, gives),
    Kind.ROWS: lambda gives, gets: (0, 0),
    Kind.HALO: lambda gives, gets: (gives, gets),
    Kind.ALL_TO_ALL: lambda gives, gets: (gives, gets),
    Kind.PAD: lambda gives, gets: (0, 0),
}


def _most_moved(have: Sequence[Box], need: Sequence[Box]) -> tuple[int, int]:
    """The most numbers that a rank has and others need, and that one needs and others have."""
    given, got = [0] * len(have), [0] * len(need)
    for piece in pieces(have, need):
        if piece.source != piece.target:
            numbers = math.prod(end - begin for begin, end in piece.box.values())
            given[piece.source] += numbers
            got[piece.target] += numbers
    return max(given, default=0), max(got, default=0)
