"""Ranks as a mesh: a grid with named axes, along which work is divided.

    Mesh(data=2, stage=2, height=2)      rank = 4 * data + 2 * stage + height

``data`` divides batches, ``stage`` the layers of a model, and any other axis the work inside of
layers. The last axis varies fastest: its ranks are neighbours, and on one node where they fit.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from tnt_notebook.errors import MeshError

#: Axes with a meaning of their own.
DATA, STAGE = "data", "stage"

_EXAMPLE = "write, for instance, data=2,height=2"


@dataclass(frozen=True, init=False)
class Mesh:
    """A grid of ranks, of so many along each axis, the last of which varies fastest.

    Args:
        axes: by name of the axis, how many ranks there are along it. ``data`` may be left out: it
            gets the ranks that the others leave.

    Raises:
        MeshError: there is no axis, or one has fewer than one rank.

    Example::

        tnt.Mesh(data=2, height=2)      # two replicas; halves of each image on two ranks
    """

    axes: tuple[tuple[str, int], ...]

    def __init__(self, **axes: int) -> None:
        for name, count in axes.items():
            if isinstance(count, bool) or not isinstance(count, int) or count < 1:
                raise MeshError(
                    f"A mesh has at least one rank along each axis, and not {name}={count!r}."
                )
        if not axes:
            raise MeshError(f"A mesh has at least one axis: {_EXAMPLE}.")
        object.__setattr__(self, "axes", tuple(axes.items()))

    @classmethod
    def parsed(cls, text: str) -> Mesh:
        """The one of ``"data=2,height=2"``. Raises MeshError where it is none."""
        axes: dict[str, int] = {}
        for part in text.split(","):
            name, equals, count = part.strip().partition("=")
            if not (name.isidentifier() and equals and count.isascii() and count.isdigit()):
                raise MeshError(f"{part.strip()!r} is not an axis of a mesh: {_EXAMPLE}.")
            if name in axes:
                raise MeshError(f"The axis {name} is given twice in {text!r}.")
            axes[name] = int(count)
        return cls(**axes)

    def __str__(self) -> str:
        return ",".join(f"{name}={count}" for name, count in self.axes)

    def __repr__(self) -> str:
        return f"Mesh({', '.join(f'{name}={count}' for name, count in self.axes)})"

    @property
    def names(self) -> tuple[str, ...]:
        """Of the axes."""
        return tuple(name for name, _ in self.axes)

    @property
    def size(self) -> int:
        """How many ranks there are."""
        return math.prod(count for _, count in self.axes)

    @property
    def inner(self) -> tuple[str, ...]:
        """The axes along which the work inside of layers is divided."""
        return tuple(name for name in self.names if name not in (DATA, STAGE))

    @property
    def inner_text(self) -> str:
        """These, as they are typed."""
        return ",".join(f"{name}={self.along(name)}" for name in self.inner)

    @property
    def is_divided(self) -> bool:
        """Whether there is work inside of layers to divide."""
        return self.along_all(self.inner) > 1

    def along(self, name: str) -> int:
        """How many ranks there are along an axis; 1 along one that it does not have."""
        return dict(self.axes).get(name, 1)

    def along_all(self, names: Collection[str]) -> int:
        """How many ranks a line along some axes has."""
        return math.prod(count for name, count in self.axes if name in names)

    def of(self, ranks: int) -> Mesh:
        """The same of so many ranks: where there is no axis ``data``, it is the first, of those
        that the others leave. Raises MeshError if they do not fill it."""
        others = self.size
        if DATA in self.names or ranks % others:
            if others == ranks:
                return self
            need = f"{others} ranks" if DATA in self.names else f"a multiple of {others} ranks"
            raise MeshError(
                f"The mesh {self} needs {need}, and there are {ranks}. Change the mesh, or start a "
                "cluster of that size."
            )
        return Mesh(**{DATA: ranks // others, **dict(self.axes)})

    def place(self, rank: int) -> dict[str, int]:
        """Where a rank is along each axis."""
        place = {}
        for name, count in reversed(self.axes):
            rank, place[name] = divmod(rank, count)
        return {name: place[name] for name in self.names}

    def rank(self, place: Mapping[str, int]) -> int:
        """The rank at a place; axes that it leaves out are at 0."""
        rank = 0
        for name, count in self.axes:
            rank = rank * count + place.get(name, 0)
        return rank

    def line(self, rank: int, names: Collection[str]) -> tuple[int, ...]:
        """The ranks that are where a rank is along all other axes than these, ascending."""
        here = self.place(rank)
        return tuple(
            self.rank({**here, **there}) for there in self._places(names)
        )  # the order of places is that of ranks

    def lines(self, names: Collection[str]) -> list[tuple[int, ...]]:
        """All such lines, which have each rank once."""
        others = [name for name in self.names if name not in names]
        return [self.line(self.rank(place), names) for place in self._places(others)]

    def _places(self, names: Collection[str]) -> Iterator[dict[str, int]]:
        chosen = [(name, range(count)) for name, count in self.axes if name in names]
        for place in itertools.product(*(counts for _, counts in chosen)):
            yield dict(zip((name for name, _ in chosen), place, strict=True))


@dataclass(frozen=True, init=False)
class Split:
    """How the work of a layer is to be divided: by name of the way, along which axis of the mesh.

    Ways have the names of what they cut: ``depth``, ``height``, ``width`` or ``channels`` of what
    a layer takes and gives, ``filters`` of a convolution, ``columns`` or ``rows`` of the kernel of
    a dense layer or an embedding, ``heads`` of attention.

    Example::

        tnt.Model(model, mesh=tnt.Mesh(model=2), layouts={
            "conv.*": tnt.Split(filters="model"), "dense_1": tnt.Split(rows="model"),
        })
    """

    ways: tuple[tuple[str, str], ...]

    def __init__(self, **ways: str) -> None:
        object.__setattr__(self, "ways", tuple((axis, way) for way, axis in ways.items()))

    def __repr__(self) -> str:
        return f"Split({', '.join(f'{way}={axis!r}' for axis, way in self.ways)})"


#: By a regular expression for whole names of layers.
Layouts = Mapping[str, Split]
