"""Where a process is, from what faulthandler writes of all its threads."""

from __future__ import annotations

import re

_LINES = 12
_THREAD = re.compile(r"(?:Current thread|Thread) 0x[0-9a-f]+.*\(most recent call first\):")
#: Neither code of a cell nor of a file of the user's.
_LIBRARY = re.compile(r'File "[^"]*(/site-packages/|/lib/python\d|/tnt_notebook/|<frozen )')


def place(dump: str) -> str:
    """The calls of the thread that matters, innermost first.

    That is a thread beside the main one which runs code of the user's, as TensorFlow's when it
    reads input from Python; else the main thread, which is the last.
    """
    threads: list[list[str]] = []
    for line in dump.splitlines():
        if _THREAD.match(line):
            threads.append([])
        elif threads and line.startswith("  File "):
            threads[-1].append(line)
    if not threads:
        return "(it did not say: it is stopped, or waits for a device or a file system)"
    users = [t for t in threads[:-1] if any(not _LIBRARY.search(line) for line in t)]
    return "\n".join([*users, threads[-1]][0][:_LINES])
