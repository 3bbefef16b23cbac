"""Who takes part in the race, as data."""

from __future__ import annotations

from dataclasses import dataclass

from tests.benchmarks.contestants import INTEL_MPI, MPICH, OPEN_MPI, PROCESSES, TORCH, Runtime

IN_PLACE, PRIVATE = MODES = ("in place", "private")


@dataclass(frozen=True)
class Contestant:
    """A job of ranks that takes part.

    Attributes:
        module: what its ranks run.
        modes: those that it offers.
    """

    name: str
    runtime: Runtime
    module: str
    modes: tuple[str, ...] = MODES


_HERE = "tests.benchmarks.allreduce."

OURS = Contestant("tnt", OPEN_MPI, _HERE + "rank_tnt")
FLOOR = Contestant("floor", PROCESSES, _HERE + "rank_floor")
OTHERS = (
    Contestant("open mpi", OPEN_MPI, _HERE + "rank_mpi"),
    Contestant("mpich", MPICH, _HERE + "rank_mpi"),
    Contestant("intel mpi", INTEL_MPI, _HERE + "rank_mpi"),
    Contestant("gloo", TORCH, _HERE + "rank_gloo", (IN_PLACE,)),
)
FIELD = (OURS, *OTHERS, FLOOR)


@dataclass(frozen=True)
class Entrant:
    """What is measured in one turn: a contestant's job in one mode.

    Attributes:
        algorithm: of this project's backend; empty: the one that it chooses.
    """

    contestant: str
    mode: str = IN_PLACE
    algorithm: str = ""

    @property
    def label(self) -> str:
        """The name in tables."""
        return f"{self.contestant} {self.algorithm}".strip()
