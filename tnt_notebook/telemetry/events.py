"""What a rank did and when: the records of its trace."""

from __future__ import annotations

import functools
from itertools import pairwise

import numpy as np

from tnt_notebook.telemetry.kinds import KINDS

#: One record of :meth:`World.trace`; times in nanoseconds of CLOCK_MONOTONIC.
EVENT = np.dtype(
    [
        ("begin_ns", "u8"),
        ("end_ns", "u8"),
        ("bytes", "u8"),
        ("kind", "u2"),
        ("algorithm", "u2"),  # of a send or receive: the other rank
        ("channel", "u4"),  # of a step: its phase, and FIRST
    ]
)
#: The names of an event's ``kind``, in order.
EVENT_KINDS = tuple(kind.event for kind in KINDS)
#: What an action of a pipeline is called in the trace, by its letter.
EVENT_OF = {kind.letter: kind.event for kind in KINDS if kind.role == "action"}
#: What a step is of, by number.
PHASES = ("fit", "evaluate", "predict")
#: Set in the channel of a step: it is the first of its epoch, or of its run.
FIRST = 1 << 31

#: Set in the channel of a pipeline's action: it is of evaluation or prediction.
NOT_TRAINING = 1 << 31

#: What the backend does for a collective, from its first input to its last output.
COLLECTIVE = ("copy_in", "exchange", "copy_out")


def under_way(events: np.ndarray, since_ns: int = 0) -> float:
    """Seconds in which at least one collective was under way.

    Args:
        events: of one rank.
        since_ns: what began earlier is left out; on the clock of :func:`time.monotonic_ns`.
    """
    events = events[is_of(events, *COLLECTIVE) & (events["begin_ns"] >= since_ns)]
    return union_s(events["begin_ns"], events["end_ns"])


def exchange_rate(events: np.ndarray) -> float:
    """Bytes a second that a rank sends while collectives are under way; 0 without any."""
    exchanges = events[is_of(events, "exchange")]
    seconds = union_s(exchanges["begin_ns"], exchanges["end_ns"])
    return float(exchanges["bytes"].sum()) / seconds if seconds else 0.0


def sent_bytes(events: np.ndarray) -> float:
    """Bytes that a rank has sent."""
    return float(events["bytes"][is_of(events, "exchange", "send")].sum())


def rounds_of(inside: np.ndarray, begin_ns: int, end_ns: int) -> list[tuple[int, int]]:
    """The steps that are made in one execution (Keras's ``steps_per_execution``), mostly one, from
    the first's begin to the last's end: each later one begins with its input.

    Args:
        inside: events of the execution.
    """
    inputs = np.sort(inside["begin_ns"][is_of(inside, "input")])[1:].tolist()
    return list(pairwise([begin_ns, *inputs, end_ns]))


def is_of(events: np.ndarray, *kinds: str) -> np.ndarray:
    """Which of the events are of one of these kinds."""
    return _among(kinds)[events["kind"]]


@functools.cache
def _among(kinds: tuple[str, ...]) -> np.ndarray:
    """For the number of each kind, whether it is one of these: many times as fast as np.isin."""
    return np.array([kind in kinds for kind in EVENT_KINDS])


def union_s(begin_ns: np.ndarray, end_ns: np.ndarray) -> float:
    """Seconds that lie in at least one of the intervals."""
    return 1e-9 * union(begin_ns.astype(np.int64), end_ns.astype(np.int64))


def union(begin: np.ndarray, end: np.ndarray) -> float:
    """How much lies in at least one of the intervals, which need not be in order."""
    if not len(begin):
        return 0.0
    order = np.argsort(begin)
    begin, end = begin[order], end[order]
    covered = np.maximum.accumulate(end)
    new = np.maximum(begin[1:], covered[:-1])  # what came before covers up to there
    return float(end[0] - begin[0] + np.maximum(end[1:] - new, 0).sum())
