"""One step on all ranks, box by box: plain JSON, small enough to travel while the run goes.

::

    rank 0   FFFF....BB.B.B      a letter a box, see kinds.py; between boxes a rank is idle
    rank 1     FBFBFBFB  X

A step trace is what the live timeline draws, what a run's folder keeps, and what is exported.
"""

from __future__ import annotations

from collections import defaultdict
from itertools import chain
from typing import Annotated, Literal, NamedTuple, NotRequired, TypedDict

from tnt_notebook.telemetry.kinds import BOX_KINDS, letters

#: What goes on beside the rest that a rank does: it has a lane of its own in a drawing.
BESIDE = letters("beside")
#: What a rank computes.
WORK = letters("action", "work")
#: Boxes of a pipeline, which have a stage and a micro-batch.
ACTIONS = letters("action")

Count = Annotated[int, lambda number: number >= 0]
#: Who has said where a model is cut: a person, in one of two ways, or measured times of layers.
CutBy = Literal["cut_at", "SplitLayer", "times"]
#: Of the steps since the one before that was kept: the one of median length; the last; or, where
#: there is no other, the first of an epoch, which traces.
Which = Literal["median", "last", "first"]


class RankTrace(TypedDict):
    """The boxes of a rank, in columns of equal length, in order of their begin."""

    rank: Count
    kinds: Annotated[str, lambda letters: set(letters) <= set(BOX_KINDS)]
    """A letter for each box."""
    stages: list[Count]
    """Of an action; of S and R: the other rank; of L: the last one; else 0."""
    numbers: list[Count]
    """Of an action and of R before it: the micro-batch; of S: which one to that rank; of X and L:
    which exchange of the step; of V: which of ``conversions``; else 0."""
    begins: list[Count]
    """Ticks since the begin of the step."""
    lengths: list[Count]
    """Ticks."""


def _columns(row: RankTrace) -> tuple[str, list[Count], list[Count], list[Count], list[Count]]:
    return row["kinds"], row["stages"], row["numbers"], row["begins"], row["lengths"]


def _is_even(row: RankTrace) -> bool:
    return len(set(map(len, _columns(row)))) == 1


class StepTrace(TypedDict):
    """A training step, or one of evaluation."""

    time: float
    """Unix time of its begin, in seconds."""
    seconds: float
    """From the end of the step before to the end of this one, in the mean of all ranks. Boxes may
    end later: ranks do not begin at the same time."""
    tick: Annotated[float, lambda seconds: seconds > 0]
    """Seconds of a tick."""
    clock_error: float
    """Seconds by which clocks of different hosts may be apart; 0 on one host."""
    pipeline: Count
    """Ranks of a pipeline; 1 without."""
    ranks: Count
    """Of the run; not all of them need have a row."""
    which: NotRequired[Which]
    """Without, it is the last one: kept by an earlier version."""
    schedule: NotRequired[str]
    less_idle: NotRequired[str]
    """Another schedule, which is idle less, where there is one."""
    micro_batches: NotRequired[Count]
    formula: NotRequired[float]
    """The bubble by the formula of the schedule, 0 to 1, where there is one."""
    cut_by: NotRequired[CutBy]
    layers: NotRequired[list[Annotated[list[str], lambda ends: len(ends) == 2]]]
    """Of each stage of a pipeline the names of its first and its last layer."""
    conversions: NotRequired[list[str]]
    """What the conversions are, in words, by the numbers of their boxes."""
    rows: list[Annotated[RankTrace, _is_even]]


class Box(NamedTuple):
    """One box; times in seconds since the begin of the step."""

    rank: int
    kind: str
    stage: int
    number: int
    begin: float
    end: float


def words_of(box: Box, trace: StepTrace) -> str:
    """What a box of a step is: ``forward of micro-batch 3, stage 1``, ``halo exchange for conv2d_1,
    8 KB sent, with rank 1``."""
    conversions = trace.get("conversions", [])
    if box.kind == "V" and box.number < len(conversions):
        return conversions[box.number]
    return BOX_KINDS[box.kind].detail.format(number=box.number, stage=box.stage)


def boxes(trace: StepTrace) -> list[Box]:
    """All boxes, rank by rank."""
    return [box for own in by_rank(trace).values() for box in own]


def by_rank(trace: StepTrace) -> dict[int, list[Box]]:
    """The boxes of each rank that has a row, in order of their begin."""
    tick = trace["tick"]
    return {
        row["rank"]: [
            Box(row["rank"], kind, stage, number, begin * tick, (begin + length) * tick)
            for kind, stage, number, begin, length in zip(*_columns(row), strict=True)
        ]
        for row in trace["rows"]
    }


def of_boxes(boxes: list[Box], seconds: float | None = None, **rest: object) -> StepTrace:
    """The step trace of some boxes; `rest` are its other entries.

    A tick is small enough that no box is off by more than 1e-5 of the step.

    Args:
        seconds: how long the step took; default: from the first begin to the last end.
    """
    first = min((box.begin for box in boxes), default=0.0)
    if seconds is None:
        seconds = max((box.end for box in boxes), default=0.0) - first
    tick = max(1e-7, float(f"{seconds / 50_000:.2g}"))
    rows = []
    for rank in sorted({box.rank for box in boxes}):
        own = sorted((b for b in boxes if b.rank == rank), key=lambda box: (box.begin, box.end))
        begins = [round((box.begin - first) / tick) for box in own]
        ends = [round((box.end - first) / tick) for box in own]
        rows.append(
            RankTrace(
                rank=rank,
                kinds="".join(box.kind for box in own),
                stages=[box.stage for box in own],
                numbers=[box.number for box in own],
                begins=begins,
                lengths=[end - begin for begin, end in zip(begins, ends, strict=True)],
            )
        )
    return StepTrace(seconds=seconds, tick=tick, rows=rows, **rest)  # type: ignore[typeddict-item]


def extent_s(trace: StepTrace) -> float:
    """Seconds that a drawing of a step needs."""
    return max([trace["seconds"], *(box.end for box in boxes(trace))])


def replicas(trace: StepTrace) -> list[tuple[int, ...]]:
    """The ranks of each replica of a pipeline, in the order of its stages; empty where they cannot
    be told: some of them have no row.

    Both layouts that there are number the replicas of a stage as they number replicas.
    """
    stages_of: dict[int, set[int]] = defaultdict(set)
    for row in trace["rows"]:
        for kind, stage in zip(row["kinds"], row["stages"], strict=True):
            if kind in ACTIONS:
                stages_of[row["rank"]].add(stage)
    alike: dict[tuple[int, ...], list[int]] = defaultdict(list)
    for rank in sorted(stages_of):
        alike[tuple(sorted(stages_of[rank]))].append(rank)
    pipeline = trace["pipeline"]
    complete = len(alike) == pipeline > 1 and len({len(ranks) for ranks in alike.values()}) == 1
    if not complete:
        return []
    return list(zip(*(alike[stages] for stages in sorted(alike)), strict=True))


def grouped(trace: StepTrace) -> StepTrace:
    """The trace with its rows pipeline by pipeline, and in each in the order of its stages; as it
    is where that cannot be told."""
    order = {rank: place for place, rank in enumerate(chain(*replicas(trace)))}
    if not order:
        return trace
    return {**trace, "rows": sorted(trace["rows"], key=lambda row: order[row["rank"]])}
