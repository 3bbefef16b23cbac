"""One at a time, in the order in which they came: cells and fits on the same ranks."""

from __future__ import annotations

import threading
from collections import deque


class Turns:
    """A queue. Who draws a ticket first is first, whenever it begins to wait."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._tickets: deque[object] = deque()

    def draw(self) -> object:
        """A ticket; it has to be given back."""
        ticket = object()
        with self._changed:
            self._tickets.append(ticket)
        return ticket

    def wait(self, ticket: object, timeout_s: float) -> bool:
        """Waits until it is this ticket's turn; whether it is, after so many seconds."""
        with self._changed:
            return self._changed.wait_for(lambda: self._tickets[0] is ticket, timeout_s)

    def give_back(self, ticket: object) -> None:
        """Ends the turn, or the wait for it; a second time does nothing."""
        with self._changed:
            if ticket in self._tickets:
                self._tickets.remove(ticket)
                self._changed.notify_all()
