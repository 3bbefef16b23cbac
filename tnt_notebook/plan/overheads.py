"""What a step takes beside its layers, and how much longer these take where all ranks compute.

Ranks that share a host share its memory, caches and clock: what one of them takes alone is less
than what it takes while the others are at work. How many are follows from the timeline of a step
that is simulated with times of ranks alone.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from tnt_notebook.plan.shares import shares_of
from tnt_notebook.plan.simulate import Timeline


@dataclass(frozen=True)
class Overheads:
    """All times are in seconds, with all ranks at work.

    Attributes:
        step_s: of any step: Keras's loop, votes, metrics.
        action_s: of an action of a schedule, beside the layers that it runs.
        message_s: of a message between stages, beside its bytes.
        variable_s, element_s: that the optimizer takes for a trained weight, and for each of its
            numbers.
        busy: how many times as long layers take while all other ranks compute as well, on the
            slowest of them.
        beside: by which times of steps and optimizer are multiplied already, as fits of the model
            have shown.
        speeds: of the ranks, one beside the other; empty: not known.
        slowness: how many times as long each rank of a pipeline takes as rank 0, of which
            measurements are; empty: all are alike.
        ranks_key: by what measurements of the ranks are known that these are of; "": these are of
            none that are there.
        model_key: by what those of the model are known, on these ranks.
    """

    step_s: float = 0.0
    action_s: float = 0.0
    message_s: float = 0.0
    variable_s: float = 0.0
    element_s: float = 0.0
    busy: float = 1.0
    beside: float = 1.0
    ranks_key: str = ""
    model_key: str = ""
    speeds: tuple[float, ...] = ()
    slowness: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        for name in ("speeds", "slowness"):
            object.__setattr__(self, name, tuple(getattr(self, name)))  # of JSON, too

    def of_pipelines(self, stages: int, shares: Sequence[int] = ()) -> Overheads:
        """With how slow ranks are in the pipelines that they form, one after the other; the same
        where they are equally fast.

        Args:
            shares: of replicas in a batch: then the largest one counts, which the fastest has.
        """
        if not shares_of(self.speeds):
            return self
        first, counts = self.speeds[0], max if shares else min
        slowness = [first / counts(self.speeds[rank::stages]) for rank in range(stages)]
        busy = max(1.0, self.busy * min(self.speeds) / first)  # which was that of the slowest
        return replace(self, busy=busy, slowness=tuple(slowness))

    @property
    def fastest(self) -> float:
        """How many times as long the fastest rank of a pipeline takes as rank 0."""
        return min(self.slowness, default=1.0)

    def slowness_of(self, rank: int) -> float:
        """How many times as long a rank of a pipeline takes as rank 0."""
        return self.slowness[rank] if self.slowness else 1.0

    def update_s(self, variables: int, elements: int) -> float:
        """Seconds of the optimizer, of so many weights with so many numbers in all."""
        return variables * self.variable_s + elements * self.element_s


#: Nothing is known of them.
NONE = Overheads()


def slowed(overheads: Overheads, timeline: Timeline, replicas: int) -> float:
    """How many times as long layers take as on a rank alone.

    Args:
        timeline: of one of the replicas, with times of ranks alone.
        replicas: that do the same at the same time.
    """
    return 1 + (overheads.busy - 1) * company(timeline, replicas)


def company(timeline: Timeline, replicas: int) -> float:
    """Which part of the other ranks is at work while one is, in the mean, 0 to 1."""
    others = replicas * timeline.ranks - 1
    return (replicas * timeline.company - 1) / others if others else 0.0


def least_slowed_s(
    overheads: Overheads,
    alone_s: float,
    work_s: float,
    ranks: int,
    replicas: int,
    fixed_s: float = 0.0,
) -> float:
    """Seconds that a step of layers takes at least, if on ranks that work alone it takes
    ``alone_s + fixed_s`` at least, of which ``fixed_s`` are not of layers, and ranks together work
    for ``work_s``.

    While one rank is at work, no less than ``work_s / x`` are in the mean, in a step of ``x``
    seconds (Cauchy and Schwarz). So :func:`slowed` is no less than it would be with that, and

        x >= fixed_s + alone_s (1 + k (replicas work_s / x - 1))  with  k = (busy - 1) / other ranks
    """
    others = replicas * ranks - 1
    if others == 0:
        return alone_s + fixed_s
    if ranks == 1:  # all of them are always at work
        return overheads.busy * alone_s + fixed_s
    k = (overheads.busy - 1) / others
    half = (alone_s * (1 - k) + fixed_s) / 2
    return max(alone_s + fixed_s, half + math.sqrt(half**2 + alone_s * k * replicas * work_s))
