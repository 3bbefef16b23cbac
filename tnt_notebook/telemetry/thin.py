"""Bounded memory: a list that keeps its shape and loses resolution."""

from __future__ import annotations

from typing import TypeVar

T = TypeVar("T")


def spread(count: int, room: int) -> list[int]:
    """All numbers below `count`, if there is room; else as many as there is room for, evenly
    spread, the first and last among them."""
    if count <= room:
        return list(range(count))
    return [i * (count - 1) // (room - 1) for i in range(room)] if room > 1 else [0]


def thinned(items: list[T], limit: int) -> list[T]:
    """At most `limit` of the items, evenly spread; the last one is always among them.

    A list that grows is thinned each time it passes the limit: its beginning gets sparser, its end
    stays as dense as it came.
    """
    if len(items) <= limit:
        return items
    stride = -(-(len(items) - 1) // (limit - 1))
    return [*items[:-1:stride], items[-1]]
