"""A limit on how often something is sent: the latest value counts, those between are dropped."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class Paced(Generic[T]):
    """Hands on the latest of many values, at most once per interval, from any thread.

    The first value goes through at once; of those that come too soon the last goes through when the
    interval is over, so what is shown is never older than the interval.

    Args:
        send: Called with a value, never twice at the same time.
        interval: Seconds between two calls at least.
    """

    def __init__(self, send: Callable[[T], None], interval: float) -> None:
        self._send, self._interval = send, interval
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
            self._free_at = time.monotonic() + self._interval
