"""Waiting for something to become so, with a bound."""

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def eventually(condition: Callable[[], T], seconds: float = 240.0) -> T:
    """What the condition says once it holds; fails if it does not within so many seconds."""
    deadline = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < deadline, "it did not become so"
        time.sleep(0.02)  # between two looks
    return value
