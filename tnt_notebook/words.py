"""Numbers of ranks, and times, as sentences say them."""

from __future__ import annotations


def ranks(n: int) -> str:
    """``1 rank``, ``4 ranks``."""
    return "1 rank" if n == 1 else f"{n} ranks"


def number(n: int, one: str, more: str) -> str:
    """The word that goes with so many of something: ``is`` or ``are``."""
    return one if n == 1 else more


def about(seconds: float) -> str:
    """A time in one unit: 95 s, 12 min, 2.5 h."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
