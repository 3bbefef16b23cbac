"""Where the time of a training step goes on a rank, from its events.

::

    step      |................................................|
    input      |==|                                               its batch is not there yet
    work          |=====   ======  ====  ====|                    forward and backward
    conversion         ==        ==                               values go from layout to layout
    wait                ===      ==    ==                         for what other stages make
    skew                                     |===|                until the last rank has come
    exchange                                     |====|           nothing else to do
    other     |                                       |========|  optimizer, metrics, Python

What is exchanged while a rank works costs it nothing, and is not counted. The rank that the others
wait for is the one without skew: it has more work than they, or input that comes later, or more of
the rest, such as a callback.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

import numpy as np

from tnt_notebook.telemetry.conversions import Conversion, converting_ns
from tnt_notebook.telemetry.events import EVENT_OF, NOT_TRAINING, is_of, rounds_of, union_s


class Breakdown(NamedTuple):
    """Seconds of a step."""

    input: float
    work: float
    wait: float
    skew: float
    exchange: float
    other: float
    conversion: float = 0.0

    @property
    def step(self) -> float:
        """All parts together."""
        return sum(self)


class Part(NamedTuple):
    """How a part of a step is drawn, and what it is."""

    colour: str
    meaning: str
    rare: bool = False
    """Whether it is of some runs alone, and said only where it is there."""


#: In the order in which they come: one table, ``parts.json``, for Python and the browser.
PARTS = {
    name: Part(**row)
    for name, row in json.loads(Path(__file__).with_name("parts.json").read_bytes()).items()
}

NOTHING = Breakdown(*(0.0 for _ in PARTS))


def of_step(
    events: np.ndarray,
    step: np.void,
    exchanges: np.ndarray,
    gradients_from: int = 0,
    training: bool = True,
    begin_ns: int | None = None,
    converted: Sequence[Conversion] = (),
) -> Breakdown:
    """Of a step on a rank.

    Args:
        events: of one rank, of dtype :data:`~tnt_notebook.telemetry.events.EVENT`.
        step: one of them.
        exchanges: its collectives since the step before, of dtype
            :data:`~tnt_notebook.telemetry.collectives.COLLECTIVE`.
        gradients_from: the lowest channel on which gradients are exchanged. In a pipeline a rank
            that has done its part waits for the others in exchanges on channels below.
        training: whether it is a training step.
        begin_ns: the end of the step before: what the rank has done since belongs to this one.
            Default: the begin of the step.
        converted: its conversions in the step.
    """
    own_begin, end = int(step["begin_ns"]), int(step["end_ns"])
    begin = own_begin if begin_ns is None else begin_ns
    events = _within(events[~is_of(events, "step")], own_begin, end)
    between = exchanges["end_ns"] <= own_begin
    skew, exchange = _exposed(exchanges[between], begin)
    whole = NOTHING._replace(skew=skew, exchange=exchange)
    for since, until in rounds_of(events, own_begin, end):
        one = _of_round(
            _within(events, since, until), _within(exchanges[~between], since, until),
            (since, until), gradients_from, training, converted,
        )  # fmt: skip
        whole = Breakdown(*(a + b for a, b in zip(whole, one, strict=True)))
    return whole._replace(other=max(0.0, 1e-9 * (end - begin) - whole.step))


def _within(some: np.ndarray, begin: int, end: int) -> np.ndarray:
    return some[(some["begin_ns"] >= begin) & (some["end_ns"] <= end)]


def _of_round(
    events: np.ndarray,
    exchanges: np.ndarray,
    span_ns: tuple[int, int],
    gradients_from: int,
    training: bool,
    converted: Sequence[Conversion],
) -> Breakdown:
    """Of a single step, but for the rest."""
    begin, end = span_ns
    waited = events[is_of(events, "input")]
    arrived = int(waited["end_ns"].max(initial=begin))
    actions = events[is_of(events, *EVENT_OF.values())]
    actions = actions[(actions["channel"] < NOT_TRAINING) == training]
    wait = 0.0
    if len(actions):
        done = int(actions["end_ns"].max())
        spans = list(zip(actions["begin_ns"].tolist(), actions["end_ns"].tolist(), strict=True))
        work = union_s(actions["begin_ns"], actions["end_ns"])
        of_gradients = exchanges["channel"] >= gradients_from
        wait = 1e-9 * (done - arrived) - work + sum(_exposed(exchanges[~of_gradients], done))
        exchanges = exchanges[of_gradients]
    else:
        # With the last gradient all is computed.
        ready = events[is_of(events, "ready")]["begin_ns"]
        done = int(ready.max(initial=arrived)) if len(ready) or len(exchanges) else end
        spans = [(arrived, done)]
        work = 1e-9 * (done - arrived)
    input_s = union_s(waited["begin_ns"], waited["end_ns"])
    skew, exchange = _exposed(exchanges, done)
    answers = events[is_of(events, "answer")]
    exchange += union_s(answers["begin_ns"], answers["end_ns"])
    conversion = min(work, 1e-9 * converting_ns(converted, spans)) if converted else 0.0
    work -= conversion
    return Breakdown(input_s, work, max(0.0, wait), skew, exchange, 0.0, conversion)


def mean(breakdowns: Sequence[Breakdown]) -> Breakdown:
    """The mean, over ranks or steps."""
    return Breakdown(*map(float, np.mean(breakdowns, axis=0)))


def step_s(of_ranks: Sequence[Breakdown]) -> float:
    """How long a step takes, in seconds: the mean of ranks."""
    return fmean(b.step for b in of_ranks)


def shares(of_ranks: Sequence[Breakdown]) -> dict[str, float]:
    """Which part of a step each of `PARTS` is, 0 to 1, over all ranks."""
    whole = step_s(of_ranks)
    return {
        part: fmean(getattr(b, part) for b in of_ranks) / whole if whole else 0.0 for part in PARTS
    }


def _exposed(exchanges: np.ndarray, since_ns: int) -> tuple[float, float]:
    """Seconds after an instant in which collectives wait for the last rank, and in which at least
    one of them is under way on all ranks."""
    begin, there, end = (
        np.maximum(exchanges[at], since_ns) for at in ("begin_ns", "there_ns", "end_ns")
    )
    moving = union_s(there, end)
    return union_s(begin, end) - moving, moving
