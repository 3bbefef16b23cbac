"""The ranks of a mesh at work: groups of them along any of its axes."""

from __future__ import annotations

import itertools
from collections.abc import Collection

from tnt_notebook.comm import Communicator, World
from tnt_notebook.parallel.layers.boxes import Range, blocks
from tnt_notebook.plan.mesh import Mesh


class MeshRanks:
    """This rank's place in a mesh, and the ranks beside it. Made on all ranks at once.

    Attributes:
        place: of this rank, along each axis.
    """

    def __init__(self, over: World, mesh: Mesh) -> None:
        self.over, self.mesh = over, mesh
        self.place = mesh.place(over.rank)
        # Each rank by itself is no group that ranks with whole copies need: they make none.
        fewest = 0 if len(mesh.names) > 1 else 1
        self._groups = {
            frozenset(names): self._made(names)
            for count in range(fewest, len(mesh.names) + 1)
            for names in itertools.combinations(mesh.names, count)
        }

    def _made(self, names: Collection[str]) -> Communicator:
        if self.mesh.along_all(names) == self.over.size:
            return self.over
        lines = self.mesh.lines(names)
        return self.over.split(next(i for i, line in enumerate(lines) if self.over.rank in line))

    def group(self, names: Collection[str]) -> Communicator:
        """The ranks that differ from this one along some axes alone."""
        return self._groups[frozenset(names)]

    def rows(self, size: int, axis: str) -> Range:
        """This rank's, of so many that an axis cuts."""
        return blocks(size, self.mesh.along(axis))[self.place[axis]]

    def is_first_beside(self, names: Collection[str]) -> bool:
        """Whether it is the first along all other axes: of ranks that have the same, one speaks."""
        return not any(at for name, at in self.place.items() if name not in names)
