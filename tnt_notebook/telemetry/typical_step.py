"""Which of the latest steps stands for them: the one of median length, the same on all ranks.

::

    rank 0    |  step 7  |  callback  |   step 8   |
    rank 1    | step 7 |   step 8: waits for rank 0   |
              |        <------------- 8 ------------->

A step lasts on a rank from the end of the step before to its own end. So what a rank does between
steps belongs to them, and the steps of an epoch add up to it. Ranks do not end a step at the same
time, but in the mean: the length of a step is the mean over ranks. The first step of an epoch,
which traces, or begins to read data, is none of these: it counts apart, from its own begin.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tnt_notebook.telemetry.events import FIRST, is_of
from tnt_notebook.telemetry.step_trace import Which

#: Of more steps only the newest are looked at.
MOST = 256


class Chosen(NamedTuple):
    """A step.

    Attributes:
        back: how many steps ago it was; 0: the newest.
        seconds: its length.
        among: steps of which it is the median; 0 for the first of a run, which stands for no other.
    """

    back: int
    seconds: float
    which: Which
    among: int


def steps_of(events: np.ndarray, phase: int = 0) -> np.ndarray:
    """The events that are steps of a phase, in order."""
    steps = events[is_of(events, "step")]
    return steps[steps["channel"] & ~np.uint32(FIRST) == phase]


def begins_of(steps: np.ndarray, end_before_ns: int | None = None) -> np.ndarray:
    """When steps of a rank begin, in nanoseconds: with the end of the step before, but the first of
    an epoch with its own begin; int64. The same where the step before is not known.

    Args:
        end_before_ns: of the step before the first of them.
    """
    begins = steps["begin_ns"].astype(np.int64)
    after = np.flatnonzero(~_is_first(steps))
    after = after[after > 0] if end_before_ns is None else after
    before = np.concatenate([[end_before_ns or 0], steps["end_ns"].astype(np.int64)])
    begins[after] = before[after]
    return begins


def lengths_of(steps: np.ndarray, begins: np.ndarray, whole_from_ns: int = 0) -> np.ndarray:
    """What a rank tells of its steps: how long the newest :data:`MOST` took, in seconds, the newest
    at the end; NaN where there was none, and where not all of it is in the trace.

    Args:
        steps, begins: of one rank, since the last look.
        whole_from_ns: events of before may be forgotten.
    """
    told = np.full(MOST, np.nan)
    known, begins = steps[-MOST:], begins[-MOST:]
    seconds = 1e-9 * (known["end_ns"].astype(np.int64) - begins)
    told[MOST - len(known) :] = np.where(begins >= whole_from_ns, seconds, np.nan)
    return told


def choose(lengths: np.ndarray, steps: np.ndarray, is_begin: bool = False) -> Chosen | None:
    """The step of median length, of an even number the shorter one; first steps only where there is
    no other, as in epochs of one step. None where no step is known on all ranks.

    Args:
        lengths: the mean over all ranks of what they have told.
        steps: of this rank, since the last look.
        is_begin: whether these are the first of the run.
    """
    first = np.zeros(MOST, bool)
    first[MOST - len(steps[-MOST:]) :] = _is_first(steps[-MOST:])
    known = np.flatnonzero(~np.isnan(lengths))
    if not len(known):
        return None
    which: Which = "median"
    among = known[~first[known]]
    if not len(among):
        which, among = "first", known[1:] if is_begin else known
    some = among if len(among) else known
    at = some[np.argsort(lengths[some], kind="stable")[(len(some) - 1) // 2]]
    # A number that is short in JSON, for frames and step traces alike.
    return Chosen(MOST - 1 - int(at), float(f"{lengths[at]:.6g}"), which, len(among))


def _is_first(steps: np.ndarray) -> np.ndarray:
    return (steps["channel"] & np.uint32(FIRST)) > 0
