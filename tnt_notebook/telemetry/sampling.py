"""Fewer items of a list, spread so that its shape stays."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import pairwise
from typing import TypeVar

T = TypeVar("T")


def spread(count: int, room: int) -> list[int]:
    """All numbers below `count`, or as many as there is room for: evenly spread, the first and last
    among them."""
    if count <= room:
        return list(range(count))
    return [i * (count - 1) // (room - 1) for i in range(room)] if room > 1 else [0]


def thinned(items: list[T], limit: int) -> list[T]:
    """At most `limit` of the items, evenly spread, the first and last among them.

    Not for a list that grows, and is thinned again and again: see :func:`evenly`.
    """
    return [items[i] for i in spread(len(items), limit)]


def evenly(items: list[T], limit: int, at: Callable[[T], float]) -> list[T]:
    """Of a list that grows, all of it up to a limit; beyond, a quarter to half of the limit, evenly
    spread.

    Thinned again and again it keeps its beginning, which every other item would not: of the first
    half, half would be left after the first time, a quarter after the second.

    Args:
        items: in order.
        limit: 4 or more.
        at: where an item lies, such as its time. The first item is kept, and the last of each
            stretch; stretches are as long as a power of two, so that later ones are whole numbers
            of earlier ones. ``widgets/history.js`` does the same.
    """
    if len(items) <= limit:
        return items
    begin = at(items[0])
    length = at(items[-1]) - begin
    stretch = 2.0 ** math.ceil(math.log2(length / (limit // 2))) if length > 0 else 1.0
    numbers = [int((at(item) - begin) / stretch) for item in items]
    ends = [a != b for a, b in pairwise(numbers)]
    return [item for item, kept in zip(items, [True, *ends[1:], True], strict=True) if kept]
