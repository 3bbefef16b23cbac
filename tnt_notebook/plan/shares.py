"""How large a part of each batch the replicas train, where ranks differ in speed."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

#: The fastest rank has so many parts, of which slower ones have fewer.
_PARTS = 16
#: Ranks that are nearly as fast as the fastest have equal parts: times of equal ones differ, too.
_ALIKE = 0.7


def checked(shares: Iterable[int] | str) -> tuple[int, ...]:
    """The same as a tuple, from ``"3,1"`` too. Raises ValueError where these are no positive whole
    numbers."""
    said = shares.split(",") if isinstance(shares, str) else shares
    numbers = [*map(_whole, said)]
    if not numbers or not all(numbers):
        raise ValueError(
            "shares are whole numbers greater than 0, one for each replica, as in 3,1; not "
            f"{shares!r}"
        )
    return tuple(numbers)


def _whole(said: int | str) -> int:
    """A positive whole number; 0 where it is none."""
    if isinstance(said, str):
        return int(said) if said.strip().isdecimal() else 0
    return said if type(said) is int and said > 0 else 0


def in_words(shares: Sequence[int]) -> str:
    """``3:1 of each batch``"""
    return f"{':'.join(map(str, shares))} of each batch"


def largest(batch_size: int, replicas: int, shares: Sequence[int] = ()) -> int:
    """Samples of the replica that has most of a batch; without shares all have as many."""
    return -(-batch_size * max(shares) // sum(shares)) if shares else -(-batch_size // replicas)


def shares_of(speeds: Sequence[float]) -> tuple[int, ...]:
    """The parts with which ranks of these speeds need as long as each other; empty where they are
    nearly alike."""
    fastest = max(speeds, default=0.0)
    if not fastest or min(speeds) > _ALIKE * fastest:
        return ()
    parts = [max(1, round(_PARTS * speed / fastest)) for speed in speeds]
    whole = math.gcd(*parts)
    return tuple(part // whole for part in parts)
