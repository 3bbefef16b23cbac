"""When ranks meet that would not exchange anything otherwise: a few times a second, agreed."""

from __future__ import annotations

import math

from tnt_notebook.comm import World

#: Nanoseconds between two meetings.
_APART_NS = 200_000_000


class Meetings:
    """Counts steps, alike on all ranks. The first is a meeting."""

    def __init__(self, over: World) -> None:
        self._over = over
        self.begin()

    def begin(self) -> None:
        """The next step is a meeting."""
        self._left = 1

    def is_due(self) -> bool:
        """After each step: whether ranks meet."""
        self._left -= 1
        return self._left <= 0

    def wanted(self, step_ns: int, at_most: float = math.inf) -> int:
        """In how many steps to meet again, as rank 0 wants it; 0 on others. The sum over ranks is
        what is agreed."""
        return int(min(_APART_NS // (step_ns + 1), at_most)) if self._over.rank == 0 else 0

    def agreed(self, apart: int) -> None:
        self._left = max(1, apart)
