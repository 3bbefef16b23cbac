"""The rank for which the others wait at exchanges, and what it is late by."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

from tnt_notebook.telemetry.breakdown import Breakdown, mean

#: It is one rank for which others wait if it waits for less than this part of what they do.
_LAST = 0.5


def last_rank(of_ranks: Sequence[Breakdown]) -> int | None:
    """The rank that the others wait for; None where it is now one and now another."""
    last = min(range(len(of_ranks)), key=lambda rank: of_ranks[rank].skew)
    rest = [b.skew for rank, b in enumerate(of_ranks) if rank != last]
    return last if rest and of_ranks[last].skew < _LAST * fmean(rest) else None


def late_by(of_ranks: Sequence[Breakdown], last: int) -> str:
    """The part of which the last rank has most more than the others."""
    own, rest = of_ranks[last], others_than(of_ranks, last)
    more = {part: getattr(own, part) - getattr(rest, part) for part in ("input", "work", "other")}
    return max(more, key=lambda part: more[part])


def others_than(of_ranks: Sequence[Breakdown], rank: int) -> Breakdown:
    """The mean of the others."""
    return mean([*of_ranks[:rank], *of_ranks[rank + 1 :]])
