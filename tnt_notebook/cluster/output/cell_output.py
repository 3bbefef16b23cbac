"""What comes of one request from its ranks: merged, and shown in the notebook's cell."""

from __future__ import annotations

import contextvars
from collections.abc import Iterable, Iterator
from typing import Any

from tnt_notebook.cluster.output.merger import HOLD_S, Group, Item, Merger
from tnt_notebook.cluster.output.print_output import Page

_DISPLAYS = {
    "display_data": "display", "execute_result": "display", "update_display_data": "update",
}  # fmt: skip

#: Kinds of messages that are shown.
SHOWN = ("stream", "clear_output", *_DISPLAYS)


class CellOutput:
    """The output of a request, in the cell in which it is made.

    Args:
        ranks: that it runs on.
        page: where it is shown.
        clears: whether ranks may clear what the cell shows.
    """

    def __init__(self, ranks: list[int], page: Page, clears: bool = True) -> None:
        self._ranks, self._page, self._clears = ranks, page, clears
        self._merger = Merger(ranks, HOLD_S)
        self._clears_of = dict.fromkeys(ranks, 0)
        self._cleared = 0
        self._context = contextvars.copy_context()

    def take(self, rank: int, kind: str, content: dict[str, Any], now: float) -> None:
        """Takes a message of one of the kinds in :data:`SHOWN`."""
        if kind == "stream":
            self._merger.write(rank, content["name"], content["text"], now)
        elif kind in _DISPLAYS:
            rich = {"data": content["data"], "metadata": content.get("metadata")}
            name = content.get("transient", {}).get("display_id")
            self._merger.put(rank, Item(_DISPLAYS[kind], rich, name), now)
        elif self._clears:
            self._clears_of[rank] += 1
            item = Item("clear", (self._clears_of[rank], content["wait"]))
            self._merger.put(rank, item, now)

    def end(self, rank: int, now: float) -> None:
        """No more comes from this rank."""
        self._merger.end(rank, now)

    def show(self, now: float) -> None:
        """Shows what need not wait for slower ranks any more."""
        self._page.show(self._once_cleared(self._merger.ready(now)))

    def show_rest(self, now: float) -> None:
        """Shows everything. What still comes is late."""
        self._page.show(self._once_cleared(self._merger.rest(now)))
        self._merger = Merger(self._ranks, HOLD_S)

    def show_late(self, now: float, rest: bool) -> None:
        """Shows it in its cell, which has ended, from another thread."""
        self._context.run(self.show_rest if rest else self.show, now)

    def _once_cleared(self, groups: Iterable[Group]) -> Iterator[Group]:
        """A slower rank does not clear what faster ones have shown since they did so."""
        for group in groups:
            if group.item.kind == "clear":
                number, wait = group.item.content
                if number <= self._cleared:
                    continue
                self._cleared = number
                yield Group(group.ranks, Item("clear", wait))
            else:
                yield group
