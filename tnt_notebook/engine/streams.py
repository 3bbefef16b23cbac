"""Where a rank's output goes.

What Python prints goes to the notebook and to the rank's log; what C and C++ libraries and child
processes write goes to the log only, straight to the file, so that a crash loses nothing.
"""

from __future__ import annotations

import faulthandler
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

from ipykernel.iostream import OutStream

from tnt_notebook import protocol
from tnt_notebook.engine.log import keep_end

_QUIET_S = 0.5


class RankStream(OutStream):
    """``sys.stdout`` or ``sys.stderr`` of a rank: to the notebook, and echoed to its log.

    Who prints faster than the notebook can show is held up for a moment, again and again: messages
    would pile up in the notebook's memory without an end.
    """

    _quiet_until = 0.0

    def __init__(self, session: Any, pub_thread: Any, name: str) -> None:
        # watchfd would put a pipe before the file: the last words of a dying rank would be lost.
        echo = sys.__stdout__ if name == "stdout" else sys.__stderr__
        super().__init__(session, pub_thread, name, watchfd=False, echo=echo)
        signal.signal(protocol.QUIET, _hold_up)
        signal.siginterrupt(protocol.QUIET, False)  # calls of C need not know of it

    def write(self, string: str) -> int | None:  # type: ignore[override]
        """Writes, once it may."""
        while (left := RankStream._quiet_until - time.monotonic()) > 0:
            time.sleep(left)
        return super().write(string)


def _hold_up(signum: int, frame: Any) -> None:
    RankStream._quiet_until = time.monotonic() + _QUIET_S


def send_output_to(log: Path) -> int:
    """Points file descriptors 1 and 2 of this process at ``log``.

    Returns:
        A descriptor of the launcher's stderr, for what the person at the start must see.
    """
    launcher = os.dup(2)
    file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(file, 1)
    os.dup2(file, 2)
    keep_end(file)
    faulthandler.enable()
    # Asked for where a rank hangs; it works in whatever call Python cannot be interrupted.
    faulthandler.register(protocol.STACKS)
    return launcher
