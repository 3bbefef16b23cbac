"""Which rank does what in the pipelines that a person asks for."""

from __future__ import annotations

from dataclasses import dataclass

from tnt_notebook.comm import World
from tnt_notebook.errors import ScheduleError
from tnt_notebook.plan.options import Pipeline
from tnt_notebook.plan.partition import Partition
from tnt_notebook.plan.schedule import Schedule


@dataclass(frozen=True)
class Place:
    """This rank in its pipeline: the ranks of that in the world, by their rank in the schedule, and
    this process's rank there."""

    over: World
    ranks: tuple[int, ...]
    rank: int


@dataclass(frozen=True)
class Plan:
    """What the ranks of a pipeline have agreed on."""

    cut: Partition
    schedule: Schedule
    recompute: bool = False


@dataclass(frozen=True)
class Layout:
    """Which pipeline each rank is in, and where: of each replica its ranks in the order of the
    pipeline, and the replica and position of this process."""

    ranks: tuple[tuple[int, ...], ...]
    replica: int
    position: int

    @property
    def replicas(self) -> int:
        return len(self.ranks)


def layout_of(pipeline: Pipeline, rank: int, size: int) -> Layout:
    """Raises ScheduleError if the ranks cannot be shared out evenly."""
    stages = pipeline.stages
    if size % stages:
        raise ScheduleError(
            f"{size} ranks cannot form pipelines of {stages} stages: the number of ranks must be a "
            f"multiple of {stages}."
        )
    replicas = size // stages
    if pipeline.placement == "pipeline":
        ranks = [range(r * stages, (r + 1) * stages) for r in range(replicas)]
    else:
        ranks = [range(r, size, replicas) for r in range(replicas)]
    replica = next(r for r, members in enumerate(ranks) if rank in members)
    return Layout(tuple(map(tuple, ranks)), replica, ranks[replica].index(rank))
