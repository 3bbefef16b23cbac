"""Open files, each used by one thread at a time, and not more of them than a process may have."""

from __future__ import annotations

import contextlib
import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import Any

_AT_MOST = 64


class Handles:
    """Opens files when they are first read, in the process that reads.

    Args:
        opened: opens a file by its path.
        closed: closes what that has given.
    """

    def __init__(self, opened: Callable[[str], Any], closed: Callable[[Any], None]) -> None:
        self._opened, self._closed = opened, closed
        self._lock = threading.Lock()
        self._free: OrderedDict[tuple[int, int], tuple[str, Any]] = OrderedDict()
        self._process, self._number = os.getpid(), 0

    @contextlib.contextmanager
    def of(self, path: str) -> Iterator[Any]:
        """A file, open, for this block alone; one that was read lately is still open."""
        handle = self._taken(path)
        if handle is None:
            handle = self._opened(path)
        try:
            yield handle
        except BaseException:
            self._closed(handle)  # who knows in what state it is
            raise
        for old in self._given_back(path, handle):
            self._closed(old)

    def _taken(self, path: str) -> Any:
        with self._lock:
            if self._process != os.getpid():  # the parent's are the parent's
                self._free.clear()
                self._process = os.getpid()
            for key in reversed(self._free):
                if self._free[key][0] == path:
                    return self._free.pop(key)[1]
        return None

    def _given_back(self, path: str, handle: Any) -> list[Any]:
        with self._lock:
            self._number += 1
            self._free[(os.getpid(), self._number)] = path, handle
            surplus = max(0, len(self._free) - _AT_MOST)
            return [self._free.popitem(last=False)[1][1] for _ in range(surplus)]
