"""Ranks and names as a person writes them: ``0,2-3``, ``ring,direct``."""

from __future__ import annotations

import argparse


def name_list(text: str) -> list[str]:
    """Parses ``ring,direct`` into ``["ring", "direct"]``; for use as an argparse type."""
    names = [name.strip() for name in text.split(",")]
    if not all(names):
        raise argparse.ArgumentTypeError(f"{text!r}: write names like ring,direct")
    return list(dict.fromkeys(names))


def rank_list(text: str) -> list[int]:
    """Parses ``0,2-3`` into ``[0, 2, 3]``; for use as an argparse type."""
    ranks: set[int] = set()
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        if not first.isdecimal() or (dash and not last.isdecimal()):
            raise argparse.ArgumentTypeError(f"{text!r}: write ranks like 0,2-3")
        if dash and int(last) < int(first):
            raise argparse.ArgumentTypeError(f"{part.strip()!r} counts down: write ranks like 2-3")
        ranks.update(range(int(first), int(last or first) + 1))
    return sorted(ranks)
