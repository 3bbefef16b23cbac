"""Waiting for something to become so, with a bound."""

import time
from collections.abc import Callable


def eventually(condition: Callable[[], object], seconds: float = 10.0) -> None:
    """Returns when the condition holds; fails if it does not within so many seconds."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not become so"
        time.sleep(0.02)  # between two looks
