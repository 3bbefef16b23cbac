"""Samples the steps of all ranks, now and then while a model trains.

Rank 0 has the clock: that it wants a sample travels with the metrics of a step, so that all ranks
take one after the same step. They agree on the step of median length since the last sample, and
tell what they did in it::

    lengths of steps -> allreduce ----> the median step
    its collectives --> allgather ----> when the last rank came to each
    its breakdown ----> allgather ----> rank 0
    its boxes --------> allgather ----> rank 0, with what its conversions were
"""

from __future__ import annotations

import itertools
import json
import math
import time
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from tnt_notebook.comm import World, channels
from tnt_notebook.comm.clocks import Clocks
from tnt_notebook.parallel.consistency import agreement
from tnt_notebook.parallel.observe.meters import Rapl, gpu, memory
from tnt_notebook.plan.families import bubble_by_formula, less_idle
from tnt_notebook.plan.schedule import Schedule
from tnt_notebook.telemetry import activities
from tnt_notebook.telemetry.activities import Activities
from tnt_notebook.telemetry.boxes import BOX, boxes_of_step
from tnt_notebook.telemetry.breakdown import NOTHING, Breakdown, of_step
from tnt_notebook.telemetry.collectives import arrivals, collectives, with_last
from tnt_notebook.telemetry.conversions import Conversion, conversions, converting, on
from tnt_notebook.telemetry.events import PHASES, exchange_rate, sent_bytes
from tnt_notebook.telemetry.exchanges import Exchange
from tnt_notebook.telemetry.frame import Phase
from tnt_notebook.telemetry.sampling import evenly, spread
from tnt_notebook.telemetry.step_trace import Box, StepTrace, Which, of_boxes
from tnt_notebook.telemetry.typical_step import Chosen, begins_of, choose, lengths_of, steps_of

#: Boxes of all ranks in a sample: of more ranks some stand for all, but a pipeline is shown whole.
MOST_BOXES = 600
#: And of one whole pipeline: of a longer step only the beginning is shown.
MOST_IN_A_PIPELINE = 4000

#: Samples that are kept for the end of the run, evenly spread.
_KEPT = 32

#: Seconds after which the clocks of hosts are compared again: they drift by some 10 µs a second.
_CLOCKS_S = 10.0


class StepSample(NamedTuple):
    """What rank 0 learns.

    Attributes:
        step_s: seconds of the step that stands for those since the last sample; None without one.
        which: which it is of them, and ``among`` how many.
        breakdown: of each rank, where the time of that step goes.
        step: that step, box by box.
        rate: bytes a second that a rank sends while gradients are exchanged, if that is between
            hosts. That of the rank which waits least for others.
        sent: bytes that a rank has sent in a step, the mean of ranks and of all steps so far; None
            where there were none.
        memory: bytes of each rank.
        energy: joules of all hosts and GPUs since the run began, where there are counters.
        activities: what ranks have done since the last sample.
    """

    step_s: float | None
    which: Which | None
    among: int
    breakdown: list[Breakdown]
    step: StepTrace | None
    rate: float | None
    sent: float | None
    memory: list[int]
    energy: float | None
    activities: list[Activities]


class _Facts(NamedTuple):
    """What each rank says in a sample besides its breakdown; as numbers that travel as float64."""

    boxes: float
    rate: float
    sent: float
    memory: float
    joules: float  # of its host, if the rank is the first there; NaN without a counter
    gpu: float
    gpu_joules: float
    activities: float  # of how many it has news


class StepSampler:
    """Of one call of fit, evaluate or predict. Made on all ranks at once.

    Args:
        pipelines: ranks that process the same samples, in the order of the pipeline; without
            pipelines, each alone.
        gradients_from: see :func:`~tnt_notebook.telemetry.breakdown.of_step`.
        cut: of a pipeline, the entries of a step trace that say where the model is cut.
        exchanges: by channel, what its steps exchange, when they have been traced.

    Attributes:
        steps: how many it has seen; of several in one execution, these count as one.
    """

    def __init__(
        self,
        over: World,
        phase: Phase,
        pipelines: Sequence[Sequence[int]],
        gradients_from: int = 0,
        schedule: Schedule | None = None,
        cut: Mapping[str, Any] | None = None,
        exchanges: Mapping[int, Exchange] = {},
    ) -> None:
        self._over, self._phase = over, PHASES.index(phase)
        self._pipelines, self._gradients_from = pipelines, gradients_from
        self._schedule, self._cut, self._exchanged = schedule, cut or {}, exchanges
        self._seen = over.traced()
        self._end_ns: int | None = None  # of the newest step at the last sample
        self._is_begun = False
        self._sent, self.steps = 0.0, 0  # by a rank, in the mean of ranks; in all steps so far
        self._kept: list[tuple[float, StepSample]] = []
        self._clocks: Clocks | None = None
        self._compare_at = 0.0
        is_first = over.hosts.index(over.hosts[over.rank]) == over.rank
        self._rapl = Rapl() if is_first else None
        self._gpu_begin = gpu().joules()

    def sample(self, is_last: bool = False) -> StepSample | None:
        """What there was since the last sample, or as far back as the trace goes; of activities at
        the last one all. Collective."""
        over, seen = self._over, self._seen
        self._seen = over.traced()
        events = over.trace(seen)
        forgotten = len(events) < self._seen - seen
        self._compare_clocks()
        steps = steps_of(events, self._phase)
        begins = begins_of(steps, None if forgotten else self._end_ns)
        self._end_ns = int(steps[-1]["end_ns"]) if len(steps) else self._end_ns
        # Events are written when they end: what has ended after the oldest is there.
        oldest = int(events["end_ns"][0]) if forgotten else 0
        lengths = over.allreduce(lengths_of(steps, begins, oldest)) / over.size
        chosen = choose(lengths, steps, is_begin=not self._is_begun)
        self._is_begun = self._is_begun or chosen is not None
        breakdown, boxes = NOTHING, np.empty(0, BOX)
        converted: list[Conversion] = []
        if chosen is not None:
            step, begin = steps[-1 - chosen.back], int(begins[-1 - chosen.back])
            on_channels = converting(self._exchanged)
            exchanges = self._exchanges(events, begin, int(step["end_ns"]), on_channels)
            within = (events["begin_ns"] >= begin) & (events["end_ns"] <= step["end_ns"])
            converted = conversions(events[within], on_channels)
            about_step = exchanges, self._gradients_from, self._phase == 0
            breakdown = of_step(events, step, *about_step, begin, converted)
            boxes = boxes_of_step(events, step, *about_step, converted)
        joules = self._rapl.joules() if self._rapl else 0.0
        did = activities.gathered(all_of_it=is_last)
        own = _Facts(
            len(boxes), exchange_rate(events), sent_bytes(events), memory(),
            math.nan if joules is None else joules, gpu().id, gpu().joules() - self._gpu_begin,
            did is not None,
        )  # fmt: skip
        rows = over.allgather(np.array([[*breakdown, *own]], np.float64))
        everyone = [_Facts(*map(float, row[len(NOTHING) :])) for row in rows]
        most = int(max(facts.boxes for facts in everyone))
        trace = self._gathered(boxes, list(map(str, converted)), chosen, most)
        # Some exchange in some of their steps only, so that no few of them stand for the others.
        self._sent += sum(facts.sent for facts in everyone) / over.size
        self.steps += len(steps)
        news: list[Activities | None] = []
        if any(facts.activities for facts in everyone):
            news = agreement.everyones(over, did)
        if over.rank != 0:
            return None
        which, among = (chosen.which, chosen.among) if chosen else (None, 0)
        if which == "first" and any(kept.which == "median" for _, kept in self._kept):
            among = 0  # the first step of an epoch stands for others where there are no other
        sample = StepSample(
            chosen and chosen.seconds,
            which,
            among,
            [Breakdown(*map(float, row[: len(NOTHING)])) for row in rows],
            trace,
            max(facts.rate for facts in everyone) if len(set(over.node)) > 1 else None,
            self._sent / self.steps if self.steps else None,
            [int(facts.memory) for facts in everyone],
            _energy(everyone),
            [one for one in news if one is not None],
        )
        if sample.step_s is not None:
            kept = [*self._kept, (time.monotonic(), sample)]
            self._kept = evenly(kept, _KEPT, lambda kept: kept[0])
        return sample

    def sample_of_all(self) -> StepSample | None:
        """The whole run: the median of the samples' steps, each of which counts as many times as
        there were steps that it stands for. Collective."""
        latest = self.sample(is_last=True)
        if latest is None or not self._kept:
            return latest
        samples = [one for _, one in self._kept if one.among] or [self._kept[-1][1]]
        typical = _median([one for one in samples if one.which == "median"] or samples)
        of_all = ("step_s", "among", "breakdown", "step")
        return latest._replace(**{name: getattr(typical, name) for name in of_all})

    @property
    def _ahead_ns(self) -> int:
        """How far the clock of this rank is ahead of rank 0's."""
        return 0 if self._clocks is None else int(self._clocks.ahead_ns[self._over.rank])

    def _compare_clocks(self) -> None:
        """Now and then, when rank 0 says so. Collective."""
        over = self._over
        if len(set(over.node)) == 1 and self._clocks is not None:
            return  # they have one clock
        is_late = over.rank == 0 and time.monotonic() >= self._compare_at
        if over.broadcast(np.array([is_late], np.uint8))[0]:
            self._clocks = over.compare_clocks()
            self._compare_at = time.monotonic() + _CLOCKS_S

    def _exchanges(
        self, events: np.ndarray, begin_ns: int, end_ns: int, converting: Collection[int]
    ) -> np.ndarray:
        """This rank's collectives of a step, but for those that convert, with when the last rank
        came to each. Collective."""
        within = (events["end_ns"] > begin_ns) & (events["end_ns"] <= end_ns)
        own = collectives(events[within], self._over.rank)
        own = own[~on(own, converting)]
        # Each position in a pipeline has a group of its replicas, on the same channels.
        of_replicas = (own["channel"] >= channels.REPLICAS.first) & (
            own["channel"] < channels.REPLICAS.first + channels.REPLICAS.count
        )
        own["key"][of_replicas] += self._position << 48
        everyone = self._over.allgather_bytes(arrivals(own, self._ahead_ns))
        return with_last(own, everyone, self._ahead_ns)

    @property
    def _position(self) -> int:
        """Of this rank in its pipeline."""
        return next(own.index(self._over.rank) for own in self._pipelines if self._over.rank in own)

    def _gathered(
        self, boxes: np.ndarray, converted: Sequence[str], chosen: Chosen | None, most: int
    ) -> StepTrace | None:
        """A step of ranks that stand for all; on rank 0. Collective.

        Args:
            converted: what conversions are, by the numbers of their boxes.
            most: boxes of a rank.
        """
        if chosen is None or not most:
            return None
        assert self._clocks is not None  # the first sample compares them
        pipelines, sharing = self._pipelines, len(self._pipelines[0])
        room = max(1, MOST_BOXES // (most * sharing))
        shown = [rank for p in spread(len(pipelines), room) for rank in pipelines[p]]
        own = np.sort(boxes, order="begin_ns")[: MOST_IN_A_PIPELINE // sharing]
        for time_of in ("begin_ns", "end_ns"):
            own[time_of] -= self._ahead_ns
        mine = self._over.rank in shown
        everyone = self._over.allgather_bytes(_packed(own, converted) if mine else b"")
        if self._over.rank != 0:
            return None
        words: dict[str, int] = {}  # of conversions of all ranks
        made = []
        for rank in shown:
            own, told = _unpacked(everyone[rank])
            numbers = [words.setdefault(what, len(words)) for what in told]
            for begin, end, number, stage, kind in own.tolist():
                which = numbers[number] if kind == b"V" else int(number)
                made.append(Box(rank, kind.decode(), int(stage), which, 1e-9 * begin, 1e-9 * end))
        if not made:
            return None
        began = min(box.begin for box in made)
        return of_boxes(
            made,
            seconds=chosen.seconds,
            time=time.time() - (time.monotonic() - began),
            clock_error=1e-9 * self._clocks.error_ns,
            pipeline=sharing,
            ranks=self._over.size,
            which=chosen.which,
            **about(self._schedule, made),
            **self._cut,
            **({"conversions": list(words)} if words else {}),
        )


def _packed(boxes: np.ndarray, converted: Sequence[str]) -> bytes:
    """Boxes of a rank, and what its conversions are, as they travel."""
    told = json.dumps(list(converted)).encode() if converted else b""
    return b"".join((len(boxes).to_bytes(4, "little"), boxes.tobytes(), told))


def _unpacked(block: bytes) -> tuple[np.ndarray, list[str]]:
    count = int.from_bytes(block[:4], "little")
    told = block[4 + count * BOX.itemsize :]
    return np.frombuffer(block, BOX, count, 4 if count else 0), json.loads(told) if told else []


def _median(samples: Sequence[StepSample]) -> StepSample:
    """The one whose step is of median length."""
    in_order = sorted(samples, key=lambda sample: sample.step_s or 0.0)
    weights = [sample.among or 1 for sample in in_order]
    half = (sum(weights) - 1) // 2
    return next(
        sample
        for sample, until in zip(in_order, itertools.accumulate(weights), strict=True)
        if until > half
    )


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
