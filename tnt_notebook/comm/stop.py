"""Requests to the running fit, as votes of this rank: to end after its current step, or to leave a
checkpoint there.

They stand here, and not with the training, because they may come before TensorFlow is loaded.
"""

from __future__ import annotations

import threading

_requested = threading.Event()
_checkpoint = threading.Event()
_suspend = threading.Event()


def request_stop() -> None:
    """Votes for ending the running fit after its current step, on all ranks.

    Safe in signal handlers and from any thread; one rank's vote is enough.
    """
    _requested.set()


def request_checkpoint(end: bool = False) -> None:
    """Votes for a checkpoint after the current step, on all ranks; nothing where none are kept.

    Safe in signal handlers and from any thread; one rank's vote is enough.

    Args:
        end: whether training is to be left there, for another process to go on.
    """
    (_suspend if end else _checkpoint).set()


def checkpoint_requested() -> tuple[bool, bool]:
    """Whether a checkpoint was asked for, and whether training is to be left with one."""
    return _checkpoint.is_set() or _suspend.is_set(), _suspend.is_set()


def forget_checkpoint() -> None:
    """The checkpoint that was asked for is made."""
    _checkpoint.clear()


def stop_requested() -> bool:
    """Whether :func:`request_stop` was called since :func:`forget_stop`."""
    return _requested.is_set()


def forget_stop() -> None:
    """A request for one cell is not one for the next."""
    _requested.clear()
    _checkpoint.clear()
    _suspend.clear()
