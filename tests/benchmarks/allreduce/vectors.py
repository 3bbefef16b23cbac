"""What a rank does when it is asked for an allreduce: fill, meet, run, and check the sum."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tests.benchmarks.seat import Seat, timed

#: Prepares an allreduce of so many elements, by an algorithm where there is a choice: the vector to
#: fill, that of the sum, and what runs it.
Prepare = Callable[..., tuple[np.ndarray, np.ndarray, Callable[[], Any]]]


def serve(
    seat: Seat,
    modes: dict[str, Prepare],
    about: str,
    progress: Callable[[], object] | None = None,
) -> None:
    """Answers mode, bytes, algorithm and iterations with the seconds of each iteration.

    Args:
        modes: those that this contestant offers. Each size is prepared once: it may keep what it
            needs for the next call.
        progress: see `Seat.meet`.
    """
    prepared: dict[tuple, tuple] = {}

    def answer(request: dict) -> list[float]:
        mode, *words = request["mode"], request["bytes"] // 4
        words += [request["algorithm"]] if request["algorithm"] else []
        key = mode, *words
        fresh = key not in prepared
        if fresh:
            prepared[key] = modes[mode](*words)
        vector, total, run = prepared[key]

        def fill() -> None:
            vector.fill(seat.rank + 1)

        timed(seat, fill, run, 1, progress)  # warms up
        _check(total if fresh else total[[0, -1]], seat)
        seconds = timed(seat, fill, run, request["iterations"], progress)
        _check(total[[0, -1]], seat)
        return seconds

    seat.serve(answer, about)


def separate(count: int) -> tuple[np.ndarray, np.ndarray]:
    """An input and an output, both of which have been written to."""
    return np.zeros(count, np.float32), np.zeros(count, np.float32)


def _check(total: np.ndarray, seat: Seat) -> None:
    expected = seat.ranks * (seat.ranks + 1) / 2
    if not np.all(total == expected):
        raise RuntimeError(f"rank {seat.rank} has {total}, and not {expected} everywhere")
