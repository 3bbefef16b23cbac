"""One step on all ranks as it is drawn: which boxes where, how idle ranks are, and in which words.

Three painters take it from here: ``widgets/paint.js`` on the card's canvas, :mod:`.picture` in a
saved notebook, and :mod:`.step_figure` in plotly.

::

    rank 0   |F0|F1|F2|...| B0 | B1 |   20%     a box for each of the step trace
                |S0|S1|S2|                      in a lane of its own: what goes on beside
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any, TypedDict

from tnt_notebook import telemetry
from tnt_notebook.dashboard.figures.planned import planned
from tnt_notebook.dashboard.figures.summary import RANKS_WITH_A_LINE
from tnt_notebook.dashboard.figures.wording import promise, rate, short_time, which_step
from tnt_notebook.telemetry import Breakdown, Frame
from tnt_notebook.telemetry.breakdown import shares, step_s
from tnt_notebook.telemetry.bubble import actions_s, covered_s
from tnt_notebook.telemetry.critical_path import critical_path
from tnt_notebook.telemetry.kinds import BOX_KINDS, Kind
from tnt_notebook.telemetry.sampling import spread
from tnt_notebook.telemetry.step_trace import (
    ACTIONS,
    WORK,
    Box,
    StepTrace,
    by_rank,
    grouped,
    replicas,
)  # fmt: skip

#: Opacity of the boxes of a rank's second stage; in widgets/paint.js, too.
FAINT = 0.62
ROWS_WITH_A_PLAN = 32  # more leave no room for it, see widgets/lanes.js


@dataclass(frozen=True)
class RankRow:
    """What is drawn of a rank.

    Attributes:
        idle: the part of the step that it is idle, 0 to 1.
        boxes: in order of their begin.
        first_stage: boxes of its later stages are faint.
    """

    rank: int
    idle: float
    boxes: list[Box]
    first_stage: int

    def is_faint(self, box: Box) -> bool:
        return box.kind in ACTIONS and box.stage != self.first_stage


class Idle(TypedDict):
    """The part of a step that ranks are idle, 0 to 1."""

    idle: list[float]
    """Of each row of the trace."""
    bubble: float
    """Of all rows together."""


def rank_rows(trace: StepTrace, most_boxes: int, most_rows: int = 1 << 30) -> list[RankRow]:
    """The rows of a drawing, pipeline by pipeline; of more boxes or rows than these some ranks
    stand for all: those of whole pipelines, where there is room for one."""
    trace = grouped(trace)
    rows = trace["rows"]
    count = sum(len(row["kinds"]) for row in rows)
    room = min(most_rows, max(1, most_boxes * len(rows) // max(1, count)))
    shares = idle(trace)["idle"]
    boxes = by_rank(trace)
    return [
        RankRow(
            rank := rows[i]["rank"],
            shares[i],
            boxes[rank],
            min((box.stage for box in boxes[rank] if box.kind in ACTIONS), default=0),
        )
        for i in _shown(len(rows), room, trace["pipeline"] if replicas(trace) else 1)
    ]


def _shown(rows: int, room: int, together: int) -> list[int]:
    """As many rows as there is room for, spread over all; `together` of them belong together, if
    there is room for so many."""
    if together > room:
        return spread(together, room) if together < rows else spread(rows, room)
    groups = spread(rows // together, room // together)
    return [group * together + i for group in groups for i in range(together)]


def kinds_in(trace: StepTrace) -> list[Kind]:
    """The kinds of boxes that there are, in the order of a legend."""
    there = {kind for row in trace["rows"] for kind in row["kinds"]}
    return [kind for letter, kind in BOX_KINDS.items() if letter in there]


def time_of(frames: Sequence[Frame]) -> dict[str, Any]:
    """Where the time of a step goes, in the mean of those that were sampled in a run:
    ``{"step": ..., "limit": ..., "rows": [["rank 0", {"work": 0.7, ...}], ...]}``, ``step`` being
    ``"802 samples/s while training · median step 4.25 ms"``, by a plan ``", 4.1 ms promised
    (+4%)"``; of many ranks one row for all. Empty without a breakdown.
    """
    of_ranks = telemetry.breakdowns(frames)
    if not of_ranks:
        return {}
    step = ", ".join(filter(None, [f"median step {short_time(step_s(of_ranks))}", promise(frames)]))
    if training := telemetry.samples_per_s(frames):
        step = f"{rate(training)} samples/s while training · {step}"
    return _bars(of_ranks, step, telemetry.limit_of(frames))


def time_of_step(frame: Frame, what: str) -> dict[str, Any]:
    """The same of the step that was sampled in a frame, of which nothing is concluded."""
    of_ranks = [Breakdown(*parts) for parts in frame.get("breakdown", [])]
    return _bars(of_ranks, f"{what} {short_time(step_s(of_ranks))}", "") if of_ranks else {}


def _bars(of_ranks: Sequence[Breakdown], step: str, limit: str) -> dict[str, Any]:
    shown: list[tuple[str, Sequence[Breakdown]]]
    shown = [(f"rank {rank}", [breakdown]) for rank, breakdown in enumerate(of_ranks)]
    if len(of_ranks) > RANKS_WITH_A_LINE:
        shown = [("all ranks", of_ranks)]
    return {
        "step": step,
        "limit": limit,
        "rows": [
            [name, {part: round(share, 4) for part, share in shares(some).items()}]
            for name, some in shown
        ],
    }


def heading(trace: StepTrace, what: str = "") -> str:
    """``Median step 30.8 ms · idle 27%, by the formula of 1f1b 27%``

    Args:
        what: what the step is called; by default that which its trace says.
    """
    formula = ""
    if "formula" in trace:
        formula = f", by the formula of {trace.get('schedule')} {trace['formula']:.0%}"
    what = (what or which_step(trace)).capitalize()
    return f"{what} {short_time(trace['seconds'])} · idle {idle(trace)['bubble']:.0%}{formula}"


def remarks(trace: StepTrace) -> str:
    """What should be known of a step beside; empty mostly."""
    shown, error = len(trace["rows"]), trace["clock_error"]
    some = f"{shown} of {trace['ranks']} ranks shown" if shown < trace["ranks"] else ""
    clocks = f"clocks of hosts agree to {short_time(error)}" if error > 0 else ""
    return " · ".join(filter(None, [some, clocks]))


def card_step(trace: StepTrace, what: str = "") -> dict[str, Any]:
    """What the card draws of a step; ``planned`` is ``None`` where there is no room for it, too.

    Args:
        what: what the step is called, see :func:`heading`.
    """
    trace = grouped(trace)
    return {
        "measured": trace,
        "planned": planned(trace) if len(trace["rows"]) <= ROWS_WITH_A_PLAN else None,
        "idle": idle(trace)["idle"],
        "pipelines": [list(ranks) for ranks in replicas(trace)],
        "path": [list(one) for one in critical_path(trace)],
        "heading": heading(trace, what),
        "remarks": remarks(trace),
    }


def idle(trace: StepTrace) -> Idle:
    """How much of a step ranks do not work.

    Of a pipeline only actions count, from the first one's begin to the last one's end, as in
    `Timeline.bubble`; without one all that a rank computes, over the whole step.
    """
    kinds, seconds = WORK, trace["seconds"]
    if trace["pipeline"] > 1:
        kinds, seconds = ACTIONS, actions_s(trace)
    work = [[box for box in own if box.kind in kinds] for own in by_rank(trace).values()]
    shares = [max(0.0, 1 - covered_s(own) / seconds) if seconds else 0.0 for own in work]
    return {
        "idle": [round(share, 4) for share in shares],
        "bubble": round(fmean(shares), 4) if shares else 0.0,
    }
