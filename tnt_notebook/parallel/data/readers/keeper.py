"""Removes a folder of copies when the last process that uses it has ended.

Run as ``python -I -S keeper.py FOLDER`` by the process that makes the copies: imports stay light.
It waits for the lock that users hold, which the system takes from them when they end.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import sys

USERS, GONE = "users", ".gone"


def is_at(lock: int, folder: str | os.PathLike[str]) -> bool:
    """Whether an open lock is still that of the folder: it may have been removed, and made anew."""
    try:
        return os.path.samestat(os.fstat(lock), os.stat(os.path.join(folder, USERS)))
    except FileNotFoundError:
        return False


def remove_if_unused(lock: int, folder: str | os.PathLike[str], wait: bool = False) -> None:
    """Removes a folder of which no other process holds the lock; ``wait``: once that is so."""
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except BlockingIOError:
        return
    if is_at(lock, folder):
        gone = f"{os.fspath(folder)}{GONE}"  # whoever comes now makes it anew
        os.rename(folder, gone)
        fcntl.flock(lock, fcntl.LOCK_UN)  # who has opened it meanwhile sees that it is gone
        shutil.rmtree(gone, ignore_errors=True)
        with contextlib.suppress(OSError):  # there are others in it
            os.rmdir(os.path.dirname(folder))


def main(folder: str) -> None:
    try:
        lock = os.open(os.path.join(folder, USERS), os.O_RDWR)
    except FileNotFoundError:
        return
    remove_if_unused(lock, folder, wait=True)


if __name__ == "__main__":
    main(sys.argv[1])
