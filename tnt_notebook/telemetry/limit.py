"""What limits training, in a sentence that says what to do."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

from tnt_notebook.telemetry.breakdown import PARTS, Breakdown

#: Parts of a step above which they are worth a sentence.
_INPUT, _WAIT, _EXCHANGE, _OTHER = 0.15, 0.25, 0.2, 0.35
#: A rank with so many times the work of the others holds them up, if it is so much of a step.
_SLOWER, _HELD_UP = 1.2, 0.1


def shares(of_ranks: Sequence[Breakdown]) -> dict[str, float]:
    """Which part of a step each of `PARTS` is, 0 to 1, over all ranks."""
    whole = fmean(b.step for b in of_ranks)
    return {
        part: fmean(getattr(b, part) for b in of_ranks) / whole if whole else 0.0 for part in PARTS
    }


def limit(of_ranks: Sequence[Breakdown], sharing: int = 1) -> str:
    """What limits training most.

    Args:
        of_ranks: a step of each rank; not empty.
        sharing: ranks that process the same samples, those of a pipeline; without, 1.
    """
    part = shares(of_ranks)
    if part["input"] > _INPUT:
        return (
            f"Ranks wait for input during {part['input']:.0%} of a step: let it be read ahead "
            "(.prefetch, .cache of a dataset), or be cheaper to make."
        )
    if held_up := _slowest(of_ranks, sharing):
        return held_up
    if part["wait"] > _WAIT:
        return (
            f"Ranks of the pipeline wait for each other during {part['wait']:.0%} of a step: use "
            "more micro-batches, or schedule zb-h1."
        )
    if part["exchange"] > _EXCHANGE:
        return (
            f"{part['exchange']:.0%} of a step is exchange of gradients that nothing hides: make "
            "batches larger."
        )
    if part["other"] > _OTHER:
        return (
            f"{part['other']:.0%} of a step is optimizer, metrics and Python: make batches "
            "larger, or run several steps per execution."
        )
    return f"Ranks work for {part['work']:.0%} of a step."


def _slowest(of_ranks: Sequence[Breakdown], sharing: int) -> str | None:
    if len(of_ranks) == 1:
        return None
    work = [b.work for b in of_ranks]
    slow = max(range(len(work)), key=work.__getitem__)
    others = fmean(work[:slow] + work[slow + 1 :])
    more = work[slow] - others
    if work[slow] < _SLOWER * others or more < _HELD_UP * of_ranks[slow].step or not others:
        return None
    times = f"{work[slow] / others:.1f} times"
    if sharing > 1:
        return (
            f"Rank {slow} has {times} the work of the others, which wait for it: cut the model "
            "elsewhere; without cut_at, measured times decide."
        )
    return (
        f"Rank {slow} works {times} as long as the others, which wait for it: is its machine "
        "slower, or busy with something else?"
    )
