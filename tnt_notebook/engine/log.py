"""A rank's log keeps its end, so that what is printed for days does not fill the disk.

The front is cut away where it lies: its blocks are given back, and the file keeps its length. So
whoever writes at the end, child processes too, and whoever reads from some place on, go on as
before. Where a file system cannot do that, the file is emptied but for its end.
"""

from __future__ import annotations

import ctypes
import os
import threading

KEPT_BYTES = 64 << 20
MOST_BYTES = 128 << 20
LOOK_S = 1.0
_KEPT_OF_EMPTIED = 1 << 20

_KEEP_SIZE, _PUNCH_HOLE = 0x01, 0x02  # linux/falloc.h


def keep_end(log: int) -> threading.Thread:
    """Begins to look after a log, until this process ends.

    Args:
        log: file descriptor, to write at the end.
    """
    thread = threading.Thread(target=_look_after, args=(log,), name="tnt-log", daemon=True)
    thread.start()
    return thread


def cut(log: int, begin: int = 0, most: int = MOST_BYTES, kept: int = KEPT_BYTES) -> int:
    """Gives back the space of all but the last ``kept`` bytes of a log of more than ``most``.

    Args:
        log: file descriptor, to write at the end.
        begin: where what is kept begins until now.

    Returns:
        Where what is kept begins now. (How much room a file takes says nothing: file systems
        reserve some behind its end, or compress it.)

    Raises:
        OSError: it cannot be cut.
    """
    size = os.fstat(log).st_size
    if size - begin <= most:
        return begin
    if _punched(log, size - kept):
        return size - kept
    with open(f"/proc/self/fd/{log}", "rb") as file:
        file.seek(max(0, size - _KEPT_OF_EMPTIED))
        end = file.read()
    os.ftruncate(log, 0)
    os.write(log, b"(The beginning of this log was cut away.)\n" + end)
    return 0


def _look_after(log: int) -> None:
    pause = threading.Event()
    begin = 0
    try:
        while not pause.wait(LOOK_S):
            begin = cut(log, begin)
    except OSError as error:
        os.write(log, f"This log cannot be cut, and may grow: {error}\n".encode())


def _punched(log: int, length: int) -> bool:
    """Whether the file system could give back the first bytes."""
    libc = ctypes.CDLL(None, use_errno=True)
    mode, offset = ctypes.c_int(_KEEP_SIZE | _PUNCH_HOLE), ctypes.c_int64(0)
    return libc.fallocate64(ctypes.c_int(log), mode, offset, ctypes.c_int64(length)) == 0
