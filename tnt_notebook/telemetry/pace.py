"""How often a run is told of, from its ranks to the browser and to disk."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Generic, TypeVar

#: Seconds between two frames of a run: made by rank 0, written to disk, read again from there.
FRAME_S = 0.25
#: Seconds between two tellings of what a rank does, how far a call is, and what a card shows.
TOLD_S = 0.2
#: Seconds between two steps that all ranks are looked at in, and that a card is sent, or a drawing
#: of a sweep; more where one is so large that these bytes a second would not be enough.
STEP_S = 0.5
STEP_BYTES_PER_S, CARD_BYTES_PER_S, SWEEP_BYTES_PER_S = 3000, 1500, 40_000
#: Seconds between two signs of life of a card.
HEARTBEAT_S = 2.0

#: Ranks of which each tells that often; of more, each tells less.
_RANKS_AT_FULL_PACE = 64


def slower(ranks: int) -> float:
    """By what the seconds between two tellings are to be multiplied for so many ranks."""
    return max(1.0, ranks / _RANKS_AT_FULL_PACE)


T = TypeVar("T")


class Paced(Generic[T]):
    """Hands on the latest of many values, at most once per interval, from any thread.

    The first value goes through at once; of those that come too soon the last goes through when the
    interval is over, so what is shown is never older than the interval.

    Args:
        send: Called with a value, never twice at the same time.
        interval: Seconds between two calls at least; may be changed later.
    """

    def __init__(self, send: Callable[[T], None], interval: float) -> None:
        self._send, self.interval = send, interval
        self._lock = threading.Lock()
        self._waiting: list[T] = []  # empty, or the one latest value
        self._timer: threading.Timer | None = None
        self._free_at = 0.0

    def put(self, value: T) -> None:
        """Sends the value, now or soon, unless a later one comes before."""
        with self._lock:
            self._waiting = [value]
            if self._timer is not None:
                return
            delay = self._free_at - time.monotonic()
            if delay <= 0:
                self._send_waiting()
            else:
                self._timer = threading.Timer(delay, self.flush)
                self._timer.daemon = True
                self._timer.start()

    def flush(self) -> None:
        """Sends at once what waits, if anything does."""
        with self._lock:
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None
            self._send_waiting()

    def _send_waiting(self) -> None:
        waiting, self._waiting = self._waiting, []
        for value in waiting:
            self._send(value)
            self._free_at = time.monotonic() + self.interval
