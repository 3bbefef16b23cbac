"""Tells the cluster's warden that a fit goes on: it then keeps the ranks, also without an owner.

And looks whether the time of the job is nearly over, which its script is told by the batch system.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from tnt_notebook import protocol
from tnt_notebook.comm import stop

_EVERY_S = 20.0
_LOOK_S = 1.0


@contextlib.contextmanager
def busy() -> Iterator[None]:
    """Inside, a file in the cluster's folder is touched again and again, and a checkpoint asked for
    when the job's time is nearly over."""
    home = os.environ.get(protocol.FOLDER)
    if home is None:
        yield
        return
    file, time_is_up = Path(home) / protocol.BUSY, Path(home) / protocol.TIME_IS_UP
    done = threading.Event()

    def touch() -> None:
        touched = 0.0
        while True:
            if time.monotonic() - touched > _EVERY_S:
                touched = time.monotonic()
                with contextlib.suppress(OSError):  # the folder is gone: the end is near
                    file.touch(0o600)
            if time_is_up.exists():
                stop.leave.set()
                break
            if done.wait(_LOOK_S):
                break

    thread = threading.Thread(target=touch, name="tnt-busy", daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
        file.unlink(missing_ok=True)
