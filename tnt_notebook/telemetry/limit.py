"""What limits training, in a sentence that says what to do."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean
from typing import NamedTuple

from tnt_notebook.sizes import size
from tnt_notebook.telemetry.breakdown import PARTS, Breakdown
from tnt_notebook.telemetry.bubble import idle_of, messages_of
from tnt_notebook.telemetry.step_trace import StepTrace

#: Parts of a step above which they are worth a sentence.
_INPUT, _WAIT, _EXCHANGE, _OTHER = 0.15, 0.25, 0.2, 0.35
#: A rank with so many times the work of the others holds them up, if it is so much of a step.
_SLOWER, _HELD_UP = 1.2, 0.1
#: A link is slow if messages are under way, and waited for, during so much of a step; or, between
#: hosts, if a rank sends fewer bytes a second.
_UNDER_WAY, _SLOW_LINK = 0.15, 500e6


def shares(of_ranks: Sequence[Breakdown]) -> dict[str, float]:
    """Which part of a step each of `PARTS` is, 0 to 1, over all ranks."""
    whole = fmean(b.step for b in of_ranks)
    return {
        part: fmean(getattr(b, part) for b in of_ranks) / whole if whole else 0.0 for part in PARTS
    }


def limit(
    of_ranks: Sequence[Breakdown],
    sharing: int = 1,
    step: StepTrace | None = None,
    rate: float | None = None,
) -> str:
    """What limits training most.

    Args:
        of_ranks: a step of each rank; not empty.
        sharing: ranks that process the same samples, those of a pipeline; without, 1.
        step: the last step, which tells more.
        rate: bytes a second that a rank sends while gradients are exchanged between hosts; None on
            one host.
    """
    part = shares(of_ranks)
    if part["input"] > _INPUT:
        return (
            f"Ranks wait for input during {part['input']:.0%} of a step: let it be read ahead "
            "(.prefetch, .cache of a dataset), or be cheaper to make."
        )
    held_up, under_way = _held_up(of_ranks), _under_way(step)
    if under_way.share > max(_UNDER_WAY, held_up.share):
        return under_way.sentence()
    if held_up.share > _HELD_UP:
        return held_up.sentence(sharing)
    if part["wait"] > _WAIT:
        return _idle(part["wait"], step)
    if part["exchange"] > _EXCHANGE:
        what = f"{part['exchange']:.0%} of a step is exchange of gradients that nothing hides"
        if rate is not None and rate < _SLOW_LINK:
            return (
                f"{what}: the link between hosts is slow, a rank sends {size(rate)} a second. Make "
                "batches larger, so that there is less to exchange for each sample."
            )
        return f"{what}: make batches larger."
    if part["other"] > _OTHER:
        return (
            f"{part['other']:.0%} of a step is optimizer, metrics and Python: make batches "
            "larger, or run several steps per execution."
        )
    return f"Ranks work for {part['work']:.0%} of a step."


class _UnderWay(NamedTuple):
    """The link of a pipeline that is waited for longest, and for which part of a step."""

    share: float
    sender: int = 0
    receiver: int = 0

    def sentence(self) -> str:
        return (
            f"Rank {self.receiver} waits during {self.share:.0%} of a step for messages that are "
            f"on their way from rank {self.sender}: the link between them is slow. Cut the model "
            "where less goes from stage to stage, or use fewer micro-batches."
        )


def _under_way(step: StepTrace | None) -> _UnderWay:
    links = messages_of(step) if step else {}
    if step is None or not links:
        return _UnderWay(0.0)
    (sender, receiver), seconds = max(links.items(), key=lambda link: link[1])
    return _UnderWay(seconds / step["seconds"], sender, receiver)


class _HeldUp(NamedTuple):
    """The rank with most work, and for which part of a step others wait for it."""

    share: float
    rank: int = 0
    times: float = 1.0

    def sentence(self, sharing: int) -> str:
        times = f"{self.times:.1f} times"
        if sharing > 1:
            return (
                f"Rank {self.rank} has {times} the work of the others, which wait for it: cut the "
                "model elsewhere; without cut_at, measured times decide."
            )
        return (
            f"Rank {self.rank} works {times} as long as the others, which wait for it: is its "
            "machine slower, or busy with something else?"
        )


def _held_up(of_ranks: Sequence[Breakdown]) -> _HeldUp:
    work = [b.work for b in of_ranks]
    slow = max(range(len(work)), key=work.__getitem__)
    rest = work[:slow] + work[slow + 1 :]
    others = fmean(rest) if rest else 0.0
    if not others or work[slow] < _SLOWER * others:
        return _HeldUp(0.0)
    return _HeldUp((work[slow] - others) / of_ranks[slow].step, slow, work[slow] / others)


def _idle(share: float, step: StepTrace | None) -> str:
    """Of a pipeline whose ranks wait, but not for the network."""
    what = f"Ranks of the pipeline wait for each other during {share:.0%} of a step"
    idle = list(idle_of(step).values()) if step else []
    if step is None or not idle:
        return f"{what}: use more micro-batches, or another schedule."
    ends = fmean(each.fill + each.drain for each in idle) / step["seconds"]
    formula = f" ({step['formula']:.0%} by the formula)" if "formula" in step else ""
    other = f", or schedule {step['less_idle']}" if "less_idle" in step else ""
    return f"{what}, {ends:.0%} to fill and drain it{formula}: use more micro-batches{other}."
