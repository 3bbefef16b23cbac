"""Interrupts that Python cannot raise come again, a moment later, until they are raised.

What a destructor raises, or what is called when an object goes, is thrown away, and the code around
goes on as if there had been no interrupt. What is raised while a library makes an error of its own
takes that error's place without its type: of TensorFlow, whose operations fail as others are
interrupted, a cell would get a RuntimeError that speaks of pybind11.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from types import FrameType
from typing import Any

#: Seconds after which one comes again: the destructor has ended, and nobody has noticed.
_AGAIN_S = 0.01


def lose_none() -> None:
    """From now on, in this process, none is lost in a destructor."""
    before = sys.unraisablehook

    def hook(thrown: sys.UnraisableHookArgs) -> None:
        in_main = threading.current_thread() is threading.main_thread()
        handler = signal.getsignal(signal.SIGINT)
        if thrown.exc_type is not KeyboardInterrupt or not callable(handler) or not in_main:
            before(thrown)
            return
        _postpone(lambda frame: _is_within(frame, lambda one: one.f_code is hook.__code__))

    sys.unraisablehook = hook


def postponed(frame: FrameType | None) -> bool:
    """Whether an interrupt that has come there comes again instead: an error is being made."""
    if makes_error := _makes_error(frame):
        _postpone(_makes_error)
    return makes_error


def _postpone(unfit: Callable[[FrameType | None], bool]) -> None:
    """It comes again, to the handler that it has had, once it finds code that is not `unfit` to be
    interrupted. Nothing comes where that handler is replaced."""
    handler: Any = signal.getsignal(signal.SIGINT)

    def later(signum: int, frame: FrameType | None) -> None:
        if not unfit(frame):
            signal.signal(signal.SIGINT, handler)
            handler(signum, frame)

    signal.signal(signal.SIGINT, later)
    threading.Thread(target=_repeat, args=[later], daemon=True).start()


def _makes_error(frame: FrameType | None) -> bool:
    return _is_within(frame, _constructs)


def _constructs(frame: FrameType) -> bool:
    code = frame.f_code
    if code.co_name != "__init__" or code.co_argcount == 0:
        return False
    return isinstance(frame.f_locals.get(code.co_varnames[0]), BaseException)


def _is_within(frame: FrameType | None, is_it: Callable[[FrameType], bool]) -> bool:
    while frame is not None and not is_it(frame):
        frame = frame.f_back
    return frame is not None


def _repeat(later: object) -> None:
    """Interrupts until that was raised, or what it was for has ended."""
    time.sleep(_AGAIN_S)
    while signal.getsignal(signal.SIGINT) is later:
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(_AGAIN_S)
