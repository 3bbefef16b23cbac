"""Ranks, names and numbers as they stand in a line: ``0,2-3``, ``ring,direct``, ``1,4,16``."""

from __future__ import annotations

import argparse

#: Beyond any cluster's: what is written down as a range is a list here.
MOST_RANKS = 1 << 16


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
        if int(last or first) >= MOST_RANKS:
            raise argparse.ArgumentTypeError(f"{part.strip()!r}: no cluster has so many ranks")
        ranks.update(range(int(first), int(last or first) + 1))
    return sorted(ranks)


def number_list(text: str) -> list[int]:
    """Parses ``4,1,16`` into ``[1, 4, 16]``; for use as an argparse type."""
    words = [word.strip() for word in text.split(",")]
    if not all(word.isdecimal() for word in words):
        raise argparse.ArgumentTypeError(f"{text!r}: write numbers like 1,4,16")
    return sorted({int(word) for word in words})
