"""When each action of a schedule begins and ends on a cost model: what a step will look like."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from tnt_notebook.plan.schedule import Action, Edges, Schedule


@dataclass(frozen=True)
class Costs:
    """What parts of a step take, in seconds.

    Attributes:
        forward, inputs, weights: of one micro-batch, by stage; a whole backward is the latter two.
        transfer: of what stage ``a`` sends stage ``b`` (or the gradient back), by ``(a, b)``, where
            they are on different ranks; 0 where nothing is said.
        action: of any action, beside that.
    """

    forward: Sequence[float]
    inputs: Sequence[float]
    weights: Sequence[float]
    transfer: Mapping[tuple[int, int], float] = field(default_factory=dict)
    action: float = 0.0

    def slowed(self, times: float) -> Costs:
        """Where the work of layers takes so many times as long."""
        forward, inputs, weights = (
            [times * s for s in part] for part in (self.forward, self.inputs, self.weights)
        )
        return Costs(forward, inputs, weights, self.transfer, self.action)


def even_costs(stages: int, forward: float = 1, inputs: float = 1, weights: float = 1) -> Costs:
    """All stages alike, and messages for nothing."""
    return Costs([forward] * stages, [inputs] * stages, [weights] * stages)


class Span(NamedTuple):
    """An action on a rank, from when to when, in seconds."""

    rank: int
    action: Action
    begin: float
    end: float


@dataclass(frozen=True)
class Timeline:
    """A step of a pipeline: predicted, or measured. It begins at 0 s."""

    schedule: str
    ranks: int
    micro_batches: int
    spans: tuple[Span, ...]
    measured: bool = False

    @functools.cached_property
    def seconds(self) -> float:
        """From the first action's begin to the last one's end, over all ranks."""
        return max(span.end for span in self.spans) - min(span.begin for span in self.spans)

    @property
    def bubble(self) -> float:
        """The part of the step that ranks are idle, 0 to 1: 1 - work / (ranks x step time)."""
        return 1 - self.work / (self.ranks * self.seconds)

    @property
    def work(self) -> float:
        """Seconds that ranks are busy, of all together."""
        return sum(span.end - span.begin for span in self.spans)

    @property
    def company(self) -> float:
        """How many ranks are at work while one is, itself among them, in the mean."""
        times = np.array([[span.begin, span.end] for span in self.spans])
        changes = np.concatenate([np.ones(len(times)), -np.ones(len(times))])
        at = times.T.ravel()
        order = np.argsort(at, kind="stable")
        busy, long = np.cumsum(changes[order])[:-1], np.diff(at[order])
        work = float(busy @ long)
        return float(busy**2 @ long) / work if work else 1.0

    def idle(self, rank: int) -> float:
        """The part of the step that a rank is idle, 0 to 1."""
        work = sum(span.end - span.begin for span in self.spans if span.rank == rank)
        return 1 - work / self.seconds


def simulate(schedule: Schedule, costs: Costs, edges: Edges | None = None) -> Timeline:
    """The timeline of a step in which every rank does the next action as soon as it can. Raises
    ScheduleError where ranks wait for each other."""
    order = schedule.order(edges)
    whole = [sum(both) for both in zip(costs.inputs, costs.weights, strict=True)]
    takes = {"F": costs.forward, "B": whole, "I": costs.inputs, "W": costs.weights}
    ends: list[float] = []
    free = [0.0] * schedule.ranks
    spans = []
    for rank, action, after in order:
        kind, stage, _ = action
        begin = free[rank]
        for place in after:
            maker, (_, other, _), _ = order[place]
            ready = ends[place]
            if maker != rank:
                pair = (other, stage) if other < stage else (stage, other)
                ready += costs.transfer.get(pair, 0.0)
            if ready > begin:
                begin = ready
        end = free[rank] = begin + takes[kind][stage] + costs.action
        ends.append(end)
        spans.append(Span(rank, action, begin, end))
    return Timeline(schedule.name, schedule.ranks, schedule.micro_batches, tuple(spans))
