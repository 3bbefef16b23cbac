"""Where a rank's output goes.

What Python prints goes to the notebook and to the rank's log; what C and C++ libraries and child
processes write goes to the log only, straight to the file, so that a crash loses nothing.
"""

from __future__ import annotations

import faulthandler
import os
import sys
from pathlib import Path
from typing import Any

from ipykernel.iostream import OutStream

from tnt_notebook import protocol


class RankStream(OutStream):
    """``sys.stdout`` or ``sys.stderr`` of a rank: to the notebook, and echoed to its log."""

    def __init__(self, session: Any, pub_thread: Any, name: str) -> None:
        # watchfd would put a pipe before the file: the last words of a dying rank would be lost.
        echo = sys.__stdout__ if name == "stdout" else sys.__stderr__
        super().__init__(session, pub_thread, name, watchfd=False, echo=echo)


def detach_streams(log: Path) -> int:
    """Points file descriptors 1 and 2 of this process at ``log``, and 0 at nothing: who read what
    mpiexec has passed on to rank 0 would wait for good.

    Returns:
        A descriptor of the launcher's stderr, for what the person at the start must see.
    """
    launcher = os.dup(2)
    with open(os.devnull, "rb") as nothing:
        os.dup2(nothing.fileno(), 0)
    file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(file, 1)
    os.dup2(file, 2)
    os.close(file)
    faulthandler.enable()
    # Asked for where a rank hangs; it works in whatever call Python cannot be interrupted.
    faulthandler.register(protocol.STACKS)
    return launcher
