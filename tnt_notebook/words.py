"""Numbers of ranks, times, and what was probably meant, as sentences say them."""

from __future__ import annotations

import difflib
from collections.abc import Mapping


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


def meant(word: str, known: Mapping[str, str], alike: float = 0.6) -> str:
    """Ends a sentence about a word that nobody knows: ``: did you mean --gpus?``; empty where
    nothing that is known resembles it.

    Args:
        known: by what it is compared with, what is shown.
        alike: how much both must have in common, 0 to 1.
    """
    found = difflib.get_close_matches(word, known, 1, alike)
    return f": did you mean {known[found[0]]}?" if found else ""
