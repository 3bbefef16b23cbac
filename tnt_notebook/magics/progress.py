"""What a magic shows: results, and a status line while something takes its time."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from IPython.core.getipython import get_ipython
from IPython.display import DisplayHandle, display

NONINTERACTIVE = "TNT_NONINTERACTIVE"


def noninteractive() -> bool:
    """Nobody watches: "Run All" by a tool, set by ``TNT_NONINTERACTIVE=1``."""
    return os.environ.get(NONINTERACTIVE, "") not in ("", "0")


def in_notebook() -> bool:
    """Whether what is displayed is seen: not where a prompt waits."""
    return getattr(get_ipython(), "kernel", None) is not None


def show(*bundles: Mapping[str, Any]) -> None:
    """Displays MIME bundles in a notebook; elsewhere prints the text of the first."""
    if not in_notebook():
        print(bundles[0]["text/plain"])
        return
    for one in bundles:
        display(one, raw=True)


class StatusLine:
    """One line of output, replaced by each :meth:`update`; only the last stays."""

    def __init__(self) -> None:
        # Outside a notebook, and where nobody watches, the last line is enough.
        self._live = in_notebook() and not noninteractive()
        self._place: DisplayHandle | None = None

    def update(self, line: str) -> None:
        if not self._live:
            return
        if self._place is None:
            self._place = display({"text/plain": line}, raw=True, display_id=True)
        else:
            self._place.update({"text/plain": line}, raw=True)

    def end(self, line: str) -> None:
        if self._place is None:
            print(line)
        else:
            self._place.update({"text/plain": line}, raw=True)

    def withdraw(self) -> None:
        """Nothing is under way any more, and there is nothing to say of it."""
        if self._place is not None:
            self._place.update({"text/plain": ""}, raw=True)
