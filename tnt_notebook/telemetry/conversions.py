"""Conversions in a trace: values on their way from the layout of one layer to that of another.

An exchange says what it is for when its op is made, and its events have its channel. So the
channels of a step tell which collectives are conversions::

    channel 17   halo exchange for conv2d_1      copy_in, exchange, copy_out
    channel 18   sum for dense                   copy_in, exchange, copy_out
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tnt_notebook.sizes import size
from tnt_notebook.telemetry.events import is_of, union
from tnt_notebook.telemetry.exchanges import Exchange


@dataclass(frozen=True)
class Conversion:
    """One that a rank has made.

    Attributes:
        what: as in ``halo exchange for conv2d_1``.
        sent, received: bytes, of a move; of a sum the bytes of its value.
        ranks: the others, of a move.
    """

    what: str
    begin_ns: int
    end_ns: int
    sent: int = 0
    received: int = 0
    ranks: tuple[int, ...] = ()

    def __str__(self) -> str:
        """In words: ``halo exchange for conv2d_1, 8 KB sent, with rank 1``."""
        if not self.ranks:
            return f"{self.what}, of {size(self.sent)}"
        moved = f"{size(self.sent)} sent" if self.sent else f"{size(self.received)} received"
        others = " and ".join(map(str, self.ranks))
        return f"{self.what}, {moved}, with rank{'s' * (len(self.ranks) > 1)} {others}"


def converting(channels: Mapping[int, Exchange]) -> dict[int, Exchange]:
    """The channels of conversions."""
    return {channel: one for channel, one in channels.items() if one.converts}


def on(some: np.ndarray, channels: Iterable[int]) -> np.ndarray:
    """Which of some events or collectives are on one of these channels."""
    return np.isin(some["channel"], np.fromiter(channels, np.uint32))


def conversions(events: np.ndarray, channels: Mapping[int, Exchange]) -> list[Conversion]:
    """Those of a rank, from when it has what it gives until it has what it needs.

    Args:
        events: of one rank.
        channels: what goes over each, conversions alone: see :func:`converting`.
    """
    found = []
    own = events[on(events, channels)]
    begun, ended = own[is_of(own, "copy_in")], own[is_of(own, "copy_out")]
    for channel in np.unique(begun["channel"]):
        about = channels[int(channel)]
        begins = np.sort(begun[begun["channel"] == channel], order="begin_ns")
        ends = np.sort(ended[ended["channel"] == channel], order="end_ns")
        for begin, end in zip(begins, ends, strict=False):  # the last may still be under way
            sent = round(about.sent * int(begin["bytes"]))
            received = round(about.received * int(end["bytes"]))
            span = int(begin["begin_ns"]), int(end["end_ns"])
            found.append(Conversion(about.label, *span, sent, received, about.ranks))
    return sorted(found, key=lambda one: one.begin_ns)


def converting_ns(found: Sequence[Conversion], spans: Sequence[tuple[int, int]]) -> int:
    """Nanoseconds of spans of time, which do not overlap, in which a conversion is under way."""
    begin = np.array([one.begin_ns for one in found], np.int64)
    end = np.array([one.end_ns for one in found], np.int64)
    total = 0.0
    for since, until in spans:
        inside = (end > since) & (begin < until)
        total += union(np.maximum(begin[inside], since), np.minimum(end[inside], until))
    return round(total)
