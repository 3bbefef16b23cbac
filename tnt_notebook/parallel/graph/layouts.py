"""What ranks have of a value of a traced step, along the axis ``data``.

One process computes one value. Ranks have of it

- *the same*: each all of it;
- *rows*: each its samples, along one dimension;
- *a part*: each a summand; the value is their sum;
- *its own*: each one that it made of its own samples alone, as batch norm makes statistics by rank;
  as one value, it is their mean over samples;
- *a size*: of a shape that has samples in it, each its own. Where it is a shape, that is what a
  rank needs. Where it is a number, it is that of all samples, which is known without a message.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from tnt_notebook.parallel.graph.counts import ONE, Count


@dataclass(frozen=True)
class Same:
    """Each rank has the whole value, with the same bits."""


@dataclass(frozen=True)
class Part:
    """The value is the sum of what the ranks have."""


@dataclass(frozen=True)
class Own:
    """Each rank has one of its own samples alone; one value for all is their mean over samples."""


@dataclass(frozen=True)
class Later:
    """A variable of which all ranks have the same until a step has ended: then the sum of what they
    have assigned."""


@dataclass(frozen=True)
class Size:
    """Numbers made of shapes, in which samples count."""


@dataclass(frozen=True)
class Rows:
    """Each rank has its samples, in the order of the ranks.

    Attributes:
        dim: the dimension that has them, of ``outer * samples * inner`` entries: entry
            ``(o * samples + s) * inner + i`` is of sample ``s``.
        outer: blocks of samples one after another, as a concatenation of batches makes them.
        inner: entries of a sample, as a reshape of (batch, steps) to (batch * steps) makes them.
        repeated: whether all entries are alike, so that it does not matter in which order they are.
    """

    dim: int
    outer: Count = ONE
    inner: Count = ONE
    repeated: bool = field(default=False, compare=False)

    def at(self, dim: int) -> Rows:
        """The same samples along another dimension."""
        return Rows(dim, self.outer, self.inner)


def not_repeated(layout: Layout) -> Layout:
    """The same, if nothing is known of what entries are."""
    return layout.at(layout.dim) if isinstance(layout, Rows) else layout


@dataclass(frozen=True)
class Listed:
    """A list of tensors, as loops keep them.

    Attributes:
        element: what ranks have of each of them, if it is not the same; None: there are none yet.
    """

    element: Part | Own | Rows | Size | None


Layout = Same | Part | Own | Later | Size | Rows | Listed

SAME, PART, OWN, LATER, SIZE = Same(), Part(), Own(), Later(), Size()
EMPTY = Listed(None)


def common(one: Layout, other: Layout) -> Layout:
    """The layout in which a value is kept that comes in one or another."""
    one, other = (SAME if each == SIZE else each for each in (one, other))
    if one == other or other == EMPTY:
        return one
    if one in (EMPTY, SAME):
        return other
    return one if other == SAME else SAME


def is_as(has: Layout, wanted: Layout) -> bool:
    """Whether what a rank has is as it is wanted."""
    if isinstance(has, Rows) and has.repeated and isinstance(wanted, Rows):
        return has.dim == wanted.dim
    return has in (wanted, EMPTY)


def meets(has: Layout, wanted: Layout) -> bool:
    """Whether ranks have to tell each other something, so that from one layout the other comes."""
    if isinstance(has, Rows):
        return not is_as(has, wanted)
    # Of what each has of its own samples, its share of the mean is a part.
    return (has == PART and wanted != PART) or (has == OWN and wanted not in (OWN, PART))
