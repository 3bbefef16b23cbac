"""Samples per second while a run trains, as they are shown: by rank only where ranks differ.

All ranks make a step together, and those of a pipeline see the same samples: where their shares of
a batch are equal, so are their rates, by construction, and one line says it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from tnt_notebook import telemetry
from tnt_notebook.telemetry import Frame

#: Rates that differ by less are shown once, as a factor.
_ALIKE = 1.02


class Rate(NamedTuple):
    """Samples per second while it trained (its first steps included), and samples in all, of a rank
    or of many."""

    who: str
    samples_per_s: float
    samples: int


def whole(frames: Sequence[Frame]) -> Rate:
    """Of all ranks of a run; ``frames`` has one at least."""
    sharing = frames[-1]["sharing"]  # a sample counts once
    rates, samples = telemetry.rates(frames), telemetry.total_samples(frames)
    return Rate("all", sum(rates) / sharing, sum(samples) // sharing)


def parts(frames: Sequence[Frame]) -> list[Rate]:
    """What the whole is made of: ``each rank``, or ``each pipeline``; else ``rank 0``, ``rank 1``
    and so on. Empty where it is the rate of one rank, or of one pipeline.
    """
    rates, samples = telemetry.rates(frames), telemetry.total_samples(frames)
    if are_alike(frames):
        sharing = frames[-1]["sharing"]
        who = "each pipeline" if sharing > 1 else "each rank"
        return [Rate(who, rates[0], samples[0])] if len(rates) > sharing else []
    by_rank = enumerate(zip(rates, samples, strict=True))
    return [Rate(f"rank {rank}", *of_rank) for rank, of_rank in by_rank]


def are_alike(frames: Sequence[Frame]) -> bool:
    """Whether all ranks of a run process as many samples."""
    samples = telemetry.total_samples(frames)
    return not samples or max(samples) <= _ALIKE * min(samples)
