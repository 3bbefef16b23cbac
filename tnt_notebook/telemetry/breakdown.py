"""Where the time of training steps goes on a rank, from its events.

::

    step      |................................................|
    input      |==|                                               its batch is not there yet
    work          |=====   ======  ====  ====|                    forward and backward
    wait                ===      ==    ==                         for what other stages make
    exchange                                 |====|               of gradients, nothing else to do
    other     |                                   |============|  optimizer, metrics, Python

What is exchanged while a rank works costs it nothing, and is not counted. A rank that waits for a
slower one waits in an exchange, so a slow rank is one with more work than the others.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from tnt_notebook.telemetry.events import COLLECTIVE, EVENT_OF, NOT_TRAINING, is_of, union_s
from tnt_notebook.telemetry.sampling import spread


class Breakdown(NamedTuple):
    """Seconds of a step."""

    input: float
    work: float
    wait: float
    exchange: float
    other: float

    @property
    def step(self) -> float:
        """All parts together."""
        return sum(self)


class Part(NamedTuple):
    """How a part of a step is drawn, and what it is."""

    colour: str
    meaning: str


#: In the order in which they come: one table, ``parts.json``, for Python and the browser.
PARTS = {
    name: Part(**row)
    for name, row in json.loads(Path(__file__).with_name("parts.json").read_bytes()).items()
}

NOTHING = Breakdown(0.0, 0.0, 0.0, 0.0, 0.0)


def of_steps(
    events: np.ndarray,
    gradients_from: int = 0,
    forgotten: bool = False,
    phase: int = 0,
    most: int = 1 << 30,
) -> list[Breakdown]:
    """Of each step in the trace of a rank, the oldest first.

    Args:
        events: of one rank, of dtype :data:`~tnt_notebook.telemetry.events.EVENT`.
        gradients_from: the lowest channel on which gradients are exchanged. In a pipeline a rank
            that has done its part waits for the others in exchanges on channels below.
        forgotten: whether there were events before these: a step that began before the oldest of
            them is left out.
        phase: what the steps are of, by its number in
            :data:`~tnt_notebook.telemetry.events.PHASES`.
        most: of more steps only so many are taken, evenly spread.
    """
    is_step = is_of(events, "step")
    steps = events[is_step & (events["channel"] == phase)]
    parts = events[~is_step]
    if forgotten and len(parts):
        steps = steps[steps["begin_ns"] >= parts["begin_ns"].min()]
    steps = steps[spread(len(steps), most)]
    parts = parts[np.argsort(parts["begin_ns"])]
    first, last = (np.searchsorted(parts["begin_ns"], steps[at]) for at in ("begin_ns", "end_ns"))
    return [
        _of_step(parts[i : j + 1], step, gradients_from, training=phase == 0)
        for step, i, j in zip(steps, first, last, strict=True)
    ]


def mean(breakdowns: Sequence[Breakdown]) -> Breakdown:
    """The mean step."""
    return Breakdown(*map(float, np.mean(breakdowns, axis=0)))


def _of_step(events: np.ndarray, step: np.void, gradients_from: int, training: bool) -> Breakdown:
    begin, end = int(step["begin_ns"]), int(step["end_ns"])
    events = events[events["end_ns"] <= end]
    waited = events[is_of(events, "input")]
    arrived = int(waited["end_ns"].max(initial=begin))
    collectives = events[is_of(events, *COLLECTIVE)]
    actions = events[is_of(events, *EVENT_OF.values())]
    actions = actions[(actions["channel"] < NOT_TRAINING) == training]
    wait = 0.0
    if len(actions):
        done = int(actions["end_ns"].max())
        work = union_s(actions["begin_ns"], actions["end_ns"])
        wait = 1e-9 * (done - arrived) - work
        late = collectives[collectives["channel"] < gradients_from]
        collectives = collectives[collectives["channel"] >= gradients_from]
        wait += _after(late, done)
    else:
        # With the last gradient all is computed.
        done = int(events[is_of(events, "ready")]["begin_ns"].max(initial=arrived))
        if not len(collectives):
            done = end
        work = 1e-9 * (done - arrived)
    input_s = union_s(waited["begin_ns"], waited["end_ns"])
    exchange = _after(collectives, done)
    other = 1e-9 * (end - begin) - input_s - work - wait - exchange
    return Breakdown(input_s, work, max(0.0, wait), exchange, max(0.0, other))


def _after(events: np.ndarray, begin_ns: int) -> float:
    """Seconds after an instant in which at least one of the events was under way."""
    return union_s(np.maximum(events["begin_ns"], begin_ns), np.maximum(events["end_ns"], begin_ns))
