"""The collectives of a rank: when it came to each of them, and when the last rank did.

::

    rank 0    copy_in |..............|~~~~~~~| copy_out     skew, then exchange
    rank 1                   copy_in |~~~~~~~| copy_out     it is the last: no skew

Until the last rank has come nothing can be complete, however fast the link is. Profilers of MPI
call this time *Wait at N x N* (Geimer et al., The Scalasca performance toolset architecture, 2010).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tnt_notebook.telemetry.events import is_of

#: A collective on a rank; times on the clock of that rank.
COLLECTIVE = np.dtype(
    [
        ("key", "i8"),  # the same on all ranks that take part
        ("begin_ns", "i8"),
        ("end_ns", "i8"),
        ("there_ns", "i8"),  # when the last rank has come: not before the begin, nor after the end
        ("last", "u2"),  # that rank
        ("channel", "u4"),
    ]
)
#: When a rank has come to a collective, as ranks tell each other.
_ARRIVAL = np.dtype([("key", "i8"), ("begin_ns", "i8")])
_KEYS_OF_A_CHANNEL = 1 << 16


def collectives(events: np.ndarray, rank: int = 0) -> np.ndarray:
    """Those in the trace of a rank, as an array of dtype :data:`COLLECTIVE` in order of their
    begin; as long as nobody says more, the rank itself is the last to come.

    Args:
        events: in which each collective has all its events.
    """
    begun, ended = events[is_of(events, "copy_in")], events[is_of(events, "copy_out")]
    parts = [np.empty(0, COLLECTIVE)]
    for channel in np.unique(begun["channel"]):
        begins = np.sort(begun["begin_ns"][begun["channel"] == channel])
        ends = np.sort(ended["end_ns"][ended["channel"] == channel])
        part = np.zeros(min(len(begins), len(ends)), COLLECTIVE)
        part["begin_ns"] = begins[len(begins) - len(part) :]
        part["end_ns"] = ends[len(ends) - len(part) :]
        # Ranks make the same calls on a channel in the same order. The oldest may be forgotten.
        part["key"] = int(channel) * _KEYS_OF_A_CHANNEL + np.arange(len(part))[::-1]
        part["channel"] = channel
        parts.append(part)
    found = np.sort(np.concatenate(parts), order="begin_ns")
    found["there_ns"], found["last"] = found["begin_ns"], rank
    return found


def arrivals(found: np.ndarray, ahead_ns: int = 0) -> bytes:
    """What a rank tells the others of its collectives.

    Args:
        ahead_ns: how far its clock is ahead of the one that all use.
    """
    told = np.zeros(len(found), _ARRIVAL)
    told["key"], told["begin_ns"] = found["key"], found["begin_ns"] - ahead_ns
    return told.tobytes()


def with_last(found: np.ndarray, everyone: Sequence[bytes], ahead_ns: int = 0) -> np.ndarray:
    """The collectives of a rank, with what is known when all ranks have told their arrivals.

    Args:
        everyone: :func:`arrivals` of each rank.
        ahead_ns: as there, of this rank.
    """
    told = [np.frombuffer(block, _ARRIVAL) for block in everyone]
    ranks = np.repeat(np.arange(len(told)), [len(one) for one in told])
    every = np.concatenate(told)
    order = np.lexsort((every["begin_ns"], every["key"]))
    every, ranks = every[order], ranks[order]
    latest = np.searchsorted(every["key"], found["key"], side="right") - 1
    found = found.copy()
    there = every["begin_ns"][latest] + ahead_ns
    found["there_ns"] = np.clip(there, found["begin_ns"], found["end_ns"])
    found["last"] = ranks[latest]
    return found
