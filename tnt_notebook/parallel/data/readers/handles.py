"""Open files, each used by one thread at a time, and not more of them than a process may have."""

from __future__ import annotations

import contextlib
import os
import resource
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import Any

#: Files that stay open for each dataset: of all that a process may have, a quarter.
_AT_MOST = min(1024, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 4)


class Handles:
    """Opens files when they are first read, in the process that reads.

    Args:
        opened: opens a file by its path.
        closed: closes what that has given.
    """

    def __init__(self, opened: Callable[[str], Any], closed: Callable[[Any], None]) -> None:
        self._opened, self._closed = opened, closed
        self._lock = threading.Lock()
        self._free: OrderedDict[str, list[Any]] = OrderedDict()  # that of the latest is the last
        self._process, self._count = os.getpid(), 0

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
                self._process, self._count = os.getpid(), 0
            handles = self._free.get(path)
            if not handles:
                return None
            self._count -= 1
            return handles.pop()

    def _given_back(self, path: str, handle: Any) -> list[Any]:
        """Gives what is to be closed."""
        surplus: list[Any] = []
        with self._lock:
            self._free.setdefault(path, []).append(handle)
            self._free.move_to_end(path)
            self._count += 1
            while self._count > _AT_MOST:
                oldest = next(iter(self._free))
                handles = self._free.pop(oldest)
                surplus += handles
                self._count -= len(handles)
        return surplus
