"""A collective made ready to be called again and again: Python's own part, which takes longer than
the exchange of a few bytes, is done once."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from tnt_notebook.comm.collectives import Collectives
from tnt_notebook.comm.world import World


def prepared(
    over: World, channel: int, collective: Callable[[Collectives], object]
) -> Callable[[], None]:
    """What ``collective(over)`` does, as a function that does it.

    Args:
        over: the ranks.
        channel: the backend's, which nobody else uses at the time.
        collective: calls one collective, once, of what it is given. The arrays are the caller's to
            keep, after a failure until the world has recovered.
    """
    taken = _TakenDown(over)
    collective(taken)
    run = functools.partial(
        over._engine.run, channel=channel, group=0, label=taken.label, **taken.request
    )

    def call() -> None:
        if run():
            raise over.error(taken.label)

    return call


class _TakenDown(Collectives):
    """Stands in for a world, and remembers what would be asked of the backend."""

    def __init__(self, over: World) -> None:
        self.rank, self.size, self._over = over.rank, over.size, over
        self.label = ""
        self.request: dict[str, Any] = {}

    @property
    def node(self) -> tuple[int, ...]:
        return self._over.node

    def _run(self, label: str, memory: Any, **request: Any) -> None:
        self.label, self.request = label, request
