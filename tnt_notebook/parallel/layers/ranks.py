"""The ranks of a mesh at work: groups of them along any of its axes."""

from __future__ import annotations

from collections.abc import Collection

from tnt_notebook.comm import Communicator, World
from tnt_notebook.plan.mesh import Mesh


class MeshRanks:
    """This rank's place in a mesh, and the ranks beside it.

    Attributes:
        place: of this rank, along each axis.
    """

    def __init__(self, over: World, mesh: Mesh) -> None:
        self.over, self.mesh = over, mesh
        self.place = mesh.place(over.rank)
        self._groups: dict[tuple[str, ...], Communicator] = {}

    def group(self, names: Collection[str]) -> Communicator:
        """The ranks that differ from this one along some axes alone. Collective when it is first
        asked for, so all ranks ask for the same ones, in the same order."""
        key = tuple(name for name in self.mesh.names if name in names)
        if self.mesh.along_all(key) == self.over.size:
            return self.over
        if key not in self._groups:
            lines = self.mesh.lines(key)
            color = next(i for i, line in enumerate(lines) if self.over.rank in line)
            self._groups[key] = self.over.split(color)
        return self._groups[key]
