"""A request to end the running fit after its current step, as a vote of this rank.

It stands here, and not with the training, because it may come before TensorFlow is loaded.
"""

from __future__ import annotations

import threading

_requested = threading.Event()


def request_stop() -> None:
    """Votes for ending the running fit after its current step, on all ranks.

    Safe in signal handlers and from any thread; one rank's vote is enough.
    """
    _requested.set()


def stop_requested() -> bool:
    """Whether :func:`request_stop` was called since :func:`forget_stop`."""
    return _requested.is_set()


def forget_stop() -> None:
    """A request for one cell is not one for the next."""
    _requested.clear()
