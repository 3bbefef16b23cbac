"""Looks at what all ranks did in their last steps, now and then while a model trains.

Rank 0 has the clock: that it wants to look travels with the metrics of a step, so that all ranks
look after the same one.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from tnt_notebook.comm import World
from tnt_notebook.comm.clocks import Clocks
from tnt_notebook.parallel import agreement
from tnt_notebook.parallel.meters import Rapl, gpu, memory
from tnt_notebook.plan.families import bubble_by_formula, less_idle
from tnt_notebook.plan.schedule import Schedule
from tnt_notebook.telemetry import activities
from tnt_notebook.telemetry.activities import Activities
from tnt_notebook.telemetry.boxes import BOX, last_step
from tnt_notebook.telemetry.breakdown import NOTHING, Breakdown, mean, of_steps
from tnt_notebook.telemetry.events import PHASES, exchange_rate, is_of
from tnt_notebook.telemetry.frame import Phase
from tnt_notebook.telemetry.sampling import spread
from tnt_notebook.telemetry.step_trace import Box, StepTrace, of_boxes

#: Boxes of all ranks in a look: of more ranks some stand for all, but a pipeline is shown whole.
MOST_BOXES = 600
#: And of one whole pipeline: of a longer step only the beginning is shown.
MOST_IN_A_PIPELINE = 4000

#: Steps that stand for all since the last look, and at the end for the whole run: each takes a rank
#: some 0.1 ms.
_STEPS, _STEPS_IN_ALL = 8, 200

#: Seconds after which the clocks of hosts are compared again: they drift by some 10 µs a second.
_CLOCKS_S = 10.0


class Look(NamedTuple):
    """What rank 0 learns.

    Attributes:
        breakdown: of each rank, where the time of a step goes.
        rate: bytes a second that a rank sends while gradients are exchanged, if that is between
            hosts. That of the rank which waits least for others.
        memory: bytes of each rank.
        energy: joules of all hosts and GPUs since the run began, where there are counters.
        activities: what ranks have done since the last look.
    """

    breakdown: list[Breakdown]
    step: StepTrace | None
    rate: float | None
    memory: list[int]
    energy: float | None
    activities: list[Activities]


class _Facts(NamedTuple):
    """What each rank says at a look, beside its breakdown; as numbers that travel as float64."""

    boxes: float
    compare_clocks: float
    rate: float
    memory: float
    joules: float  # of its host, if the rank is the first there; NaN without a counter
    gpu: float
    gpu_joules: float
    activities: float  # of how many it has news


class Looks:
    """Of one call of fit, evaluate or predict. Made on all ranks at once.

    Args:
        pipelines: ranks that process the same samples, in the order of the pipeline; without
            pipelines, each alone.
        gradients_from: see :func:`~tnt_notebook.telemetry.breakdown.of_steps`.
        cut: of a pipeline, the entries of a step trace that say where the model is cut.
    """

    def __init__(
        self,
        over: World,
        phase: Phase,
        pipelines: Sequence[Sequence[int]],
        gradients_from: int = 0,
        schedule: Schedule | None = None,
        cut: Mapping[str, Any] | None = None,
    ) -> None:
        self._over, self._phase = over, PHASES.index(phase)
        self._pipelines, self._gradients_from = pipelines, gradients_from
        self._schedule, self._cut = schedule, cut or {}
        self._begin = self._seen = over.traced()
        self._clocks: Clocks | None = None
        self._compare_at = 0.0
        is_first = over.node.index(over.node[over.rank]) == over.rank
        self._rapl = Rapl() if is_first else None
        self._gpu_begin = gpu().joules()

    def look(self, whole_run: bool = False) -> Look | None:
        """What there was since the last look, or as far back as the trace goes. Collective."""
        count, most = (self._begin, _STEPS_IN_ALL) if whole_run else (self._seen, _STEPS)
        over = self._over
        self._seen = over.traced()
        events = over.trace(count)
        forgotten = len(events) < self._seen - count
        told = events
        if count == self._begin and not forgotten:
            told = _without_first_step(events)  # it was traced, which takes long
        steps = of_steps(told, self._gradients_from, forgotten, self._phase, most)
        boxes = last_step(events, self._phase, self._gradients_from)
        late = over.rank == 0 and time.monotonic() >= self._compare_at
        joules = self._rapl.joules() if self._rapl else 0.0
        did = activities.gathered(all_of_it=whole_run)
        own = _Facts(
            len(boxes), late, exchange_rate(events), memory(),
            math.nan if joules is None else joules, gpu().id, gpu().joules() - self._gpu_begin,
            did is not None,
        )  # fmt: skip
        told = over.allgather(np.array([[*mean(steps or [NOTHING]), *own]], np.float64))
        everyone = [_Facts(*map(float, row[len(NOTHING) :])) for row in told]
        if any(facts.compare_clocks for facts in everyone):
            self._clocks = over.compare_clocks()
            self._compare_at = time.monotonic() + _CLOCKS_S
        trace = self._gathered(boxes, int(max(facts.boxes for facts in everyone)))
        news: list[Activities | None] = []
        if any(facts.activities for facts in everyone):
            news = agreement.everyones(over, did)
        if over.rank != 0:
            return None
        return Look(
            [Breakdown(*map(float, row[: len(NOTHING)])) for row in told],
            trace,
            max(facts.rate for facts in everyone) if len(set(over.node)) > 1 else None,
            [int(facts.memory) for facts in everyone],
            _energy(everyone),
            [one for one in news if one is not None],
        )

    def _gathered(self, boxes: np.ndarray, most: int) -> StepTrace | None:
        """The last step of ranks that stand for all; on rank 0. Collective."""
        if not most:
            return None
        assert self._clocks is not None  # the first look compares them
        pipelines, sharing = self._pipelines, len(self._pipelines[0])
        room = max(1, MOST_BOXES // (most * sharing))
        shown = [rank for p in spread(len(pipelines), room) for rank in pipelines[p]]
        own = np.sort(boxes, order="begin_ns")[: MOST_IN_A_PIPELINE // sharing]
        for time_of in ("begin_ns", "end_ns"):
            own[time_of] -= self._clocks.ahead_ns[self._over.rank]
        mine = self._over.rank in shown
        everyone = self._over.allgather_bytes(own.tobytes() if mine else b"")
        if self._over.rank != 0:
            return None
        made = [
            Box(rank, kind.decode(), int(stage), int(number), 1e-9 * begin, 1e-9 * end)
            for rank in shown
            for begin, end, number, stage, kind in np.frombuffer(everyone[rank], BOX).tolist()
        ]
        if not made:
            return None
        began = min(box.begin for box in made)
        return of_boxes(
            made,
            time=time.time() - (time.monotonic() - began),
            clock_error=1e-9 * self._clocks.error_ns,
            pipeline=sharing,
            ranks=self._over.size,
            **about(self._schedule, made),
            **self._cut,
        )


def _without_first_step(events: np.ndarray) -> np.ndarray:
    steps = events[is_of(events, "step")]
    return events[events["begin_ns"] > steps["end_ns"].min()] if len(steps) > 1 else events[:0]


def about(schedule: Schedule | None, boxes: Sequence[Box]) -> dict[str, Any]:
    """What is said of a step beside its boxes: the schedule, and for a training step what its
    formula says with the measured times."""
    if schedule is None:
        return {}
    told = {"schedule": schedule.name, "micro_batches": schedule.micro_batches}
    if other := less_idle(schedule.name):
        told["less_idle"] = other
    forwards = sum(box.kind == "F" for box in boxes)
    if not forwards or all(box.kind not in "BW" for box in boxes):
        return told
    per_rank = schedule.stages // schedule.ranks
    forward, inputs, weights = (
        per_rank * sum(box.end - box.begin for box in boxes if box.kind in kinds) / forwards
        for kinds in ("F", "BI", "W")
    )
    bubble = bubble_by_formula(schedule, forward, inputs, weights)
    return told if bubble is None else {**told, "formula": round(bubble, 4)}


def _energy(ranks: Sequence[_Facts]) -> float | None:
    """Of hosts and GPUs that say it; GPUs that ranks share count once."""
    of_gpus = sum({facts.gpu: facts.gpu_joules for facts in ranks}.values())
    of_hosts = [facts.joules for facts in ranks if not math.isnan(facts.joules)]
    return sum(of_hosts) + of_gpus or None
