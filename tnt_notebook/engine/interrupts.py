"""Interrupts that Python cannot raise come again: what a destructor raises, or what is called when
an object goes, is thrown away, and the code around goes on as if there had been no interrupt."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from types import FrameType
from typing import Any

#: Seconds after which one comes again: the destructor has ended, and nobody has noticed.
_AGAIN_S = 0.01


def lose_none() -> None:
    """From now on, in this process."""
    before = sys.unraisablehook

    def hook(thrown: sys.UnraisableHookArgs) -> None:
        handler: Any = signal.getsignal(signal.SIGINT)
        in_main = threading.current_thread() is threading.main_thread()
        if thrown.exc_type is not KeyboardInterrupt or not callable(handler) or not in_main:
            before(thrown)
            return

        def later(signum: int, found: FrameType | None) -> None:
            frame = found
            while frame is not None and frame.f_code is not hook.__code__:
                frame = frame.f_back
            if frame is None:  # else it would be thrown away here, too
                signal.signal(signal.SIGINT, handler)
                handler(signum, found)

        signal.signal(signal.SIGINT, later)
        threading.Thread(target=_repeat, args=[later], daemon=True).start()

    sys.unraisablehook = hook


def _repeat(later: object) -> None:
    """Interrupts until that was raised, or what it was for has ended."""
    time.sleep(_AGAIN_S)
    while signal.getsignal(signal.SIGINT) is later:
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(_AGAIN_S)
