"""Where a rank is in its pipeline, and what the ranks of that have agreed on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tnt_notebook.comm import World
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
class Stages:
    """What is seen of a model that is cut into stages.

    Attributes:
        lines: the ranks of each pipeline, in its order.
        described: what step traces say of the cut.
    """

    lines: Sequence[Sequence[int]]
    schedule: Schedule
    described: Mapping[str, Any]
