"""When ranks synchronize that would not exchange anything otherwise: a few times a second."""

from __future__ import annotations

import math

from tnt_notebook.comm import World

#: Nanoseconds from one synchronization to the next.
_APART_NS = 200_000_000
#: In one the first rank waits for the last: where a rank may be so many steps ahead of another,
#: there are this many times as many steps between two, if that does not take longer than this.
_TIMES_AHEAD, _MOST_APART_NS = 16, 5_000_000_000


class SyncInterval:
    """Counts steps, alike on all ranks. Ranks synchronize after the first.

    Args:
        ahead: steps by which a rank may be ahead of another.
    """

    def __init__(self, over: World, ahead: int = 0) -> None:
        self._over, self._ahead = over, ahead
        self.begin()

    def begin(self) -> None:
        """Ranks synchronize after the next step."""
        self._left = 1

    def is_due(self) -> bool:
        """After each step: whether ranks synchronize now."""
        self._left -= 1
        return self._left <= 0

    def wanted(self, step_ns: int, at_most: float = math.inf) -> int:
        """In how many steps to synchronize again, as rank 0 wants it; 0 on others. The sum over
        ranks is what is agreed."""
        if self._over.rank != 0:
            return 0
        apart = min(_TIMES_AHEAD * self._ahead, _MOST_APART_NS // (step_ns + 1))
        return int(min(max(apart, _APART_NS // (step_ns + 1)), at_most))

    def agreed(self, apart: int) -> None:
        self._left = max(1, apart)
