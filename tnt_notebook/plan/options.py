"""What a person says about a pipeline."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from tnt_notebook.choices import PLACEMENTS
from tnt_notebook.errors import ScheduleError
from tnt_notebook.plan.family import Maker
from tnt_notebook.sizes import parsed_size

Placement = Literal["pipeline", "replicas"]


@dataclass(frozen=True)
class Pipeline:
    """Trains a model cut into stages, each on a rank of its own.

    Args:
        stages: ranks in a pipeline. With more ranks there are several pipelines, which share the
            data: 8 ranks and ``stages=2`` are 4 replicas.
        micro_batches: how many parts a replica's share of a batch goes through the stages in.
        schedule: a name in ``tnt_notebook.plan.FAMILIES``, such as ``"1f1b"``, or a function
            ``(ranks, micro_batches, stages_per_rank) -> Schedule``.
        stages_per_rank: parts of the model that each rank has; default: as the schedule has them,
            most of them 1.
        cut_at: names of the layers that begin a stage, one less than there are parts of the model;
            default: at the model's ``tnt.keras.layers.SplitLayer``; without them, where the slowest
            stage is fastest.
        recompute: keeps only the inputs of a stage, and computes activations again in backward:
            less memory, more time.
        placement: ``"pipeline"`` puts the stages of a pipeline on neighbouring ranks, and so on a
            node where they fit; ``"replicas"`` the replicas of a stage.
        memory_limit: what a rank may need for the model, in bytes or as ``"4GB"``; a cut is found
            that keeps to it. Default: no limit.
    """

    stages: int
    micro_batches: int = 8
    schedule: str | Maker = "1f1b"
    stages_per_rank: int | None = None
    cut_at: Sequence[str] | Literal["auto"] = "auto"
    recompute: bool = False
    placement: Placement = field(default="pipeline")
    memory_limit: int | str | None = None

    def __post_init__(self) -> None:
        if self.stages < 1 or self.micro_batches < 1:
            raise ScheduleError(
                "A pipeline has at least one stage and one micro-batch, not "
                f"{self.stages} and {self.micro_batches}."
            )
        if self.placement not in PLACEMENTS:
            raise ScheduleError(f"placement is 'pipeline' or 'replicas', not {self.placement!r}.")
        try:
            possible = self.limit_bytes > 0
        except ValueError as error:
            raise ScheduleError(f"memory_limit {error}.") from None
        if not possible:
            raise ScheduleError(f"memory_limit is a number of bytes, not {self.memory_limit}.")

    @property
    def limit_bytes(self) -> float:
        """Bytes that a rank may need; infinite without a limit."""
        if isinstance(self.memory_limit, str):
            return parsed_size(self.memory_limit)
        return float("inf") if self.memory_limit is None else self.memory_limit

    def rows_of(self, batch_size: int, replicas: int) -> int:
        """Samples of the largest micro-batch, of a batch that replicas share."""
        return -(-batch_size // (replicas * self.micro_batches))
