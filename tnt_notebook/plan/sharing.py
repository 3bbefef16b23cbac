"""How ranks share out weights that each of them would train otherwise: whose optimizer's state is
whose, with the exchange ``sharded``."""

from __future__ import annotations

import heapq
from collections.abc import Sequence

#: The exchange.
SHARDED = "sharded"
#: Weights of so many bytes at most are trained by all ranks.
SMALL_BYTES = 16 << 10


def is_sharded(exchange: str) -> bool:
    """Whether it is this one, with its options or without."""
    return exchange.partition(":")[0] == SHARDED


def owners_of(
    sizes: Sequence[int], load: list[int], small_bytes: float = SMALL_BYTES
) -> dict[int, int]:
    """Of the weights of an optimizer, by place, those that one rank trains for all, and which: the
    largest first, each by the rank with least so far. Every rank trains at least one weight of each
    optimizer, so the smallest is everybody's.

    Args:
        sizes: bytes of each.
        load: bytes that each rank owns so far; this adds to it.
        small_bytes: weights of at most so many are everybody's, too.
    """
    owners = {}
    least = [*zip(load, range(len(load)), strict=True)]
    heapq.heapify(least)
    for place in sorted(range(len(sizes)), key=sizes.__getitem__, reverse=True)[:-1]:
        if sizes[place] > small_bytes:
            _, rank = least[0]
            owners[place] = rank
            load[rank] += sizes[place]
            heapq.heapreplace(least, (load[rank], rank))
    return owners
