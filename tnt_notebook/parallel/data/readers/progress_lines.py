"""Lines that say how far something is that takes long, before training begins."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from types import TracebackType

from tnt_notebook import comm

#: Seconds after which it is said that it takes long, and between two lines.
_LONG_S, _EVERY_S = 3.0, 10.0


class ProgressLines:
    """Prints lines on rank 0, where it takes long.

    Args:
        what: what is done.
        total: of what, such as files or bytes.
        shown: how numbers of that are written.
        tells: whether this process is the one to tell; default: rank 0.
    """

    def __init__(
        self,
        what: str,
        total: int,
        shown: Callable[[float], str] = str,
        tells: bool | None = None,
    ) -> None:
        self._what, self._total, self._shown = what, total, shown
        self._tells = comm.rank() == 0 if tells is None else tells
        self._lock = threading.Lock()
        self._done, self._next, self._said = 0, time.monotonic() + _LONG_S, False

    def __enter__(self) -> ProgressLines:
        return self

    def done(self, more: int) -> None:
        """So much more is done."""
        with self._lock:
            self._done += more
        if self._tells and time.monotonic() >= self._next and self._done < self._total:
            self._next, self._said = time.monotonic() + _EVERY_S, True
            self._say(f"{self._shown(self._done)} of {self._shown(self._total)}")

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        if self._said and error is None:
            self._say("done")

    def _say(self, how_far: str) -> None:
        print(f"{self._what}: {how_far}", flush=True)
