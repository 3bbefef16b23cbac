"""What limits training, in a sentence that says what to do.

A situation is a part of a step, as bars show it, that is worth a sentence from some share on. The
one with the largest share is named, if it is there in most of the samples; what is behind it, and
so what to do, depends on how the run is set up. Where nothing is worth it, nothing is said.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import NamedTuple

from tnt_notebook.sizes import size
from tnt_notebook.telemetry.breakdown import Breakdown, shares, step_s
from tnt_notebook.telemetry.bubble import idle_of, messages_of
from tnt_notebook.telemetry.evidence import LEAST_SAMPLES, Evidence
from tnt_notebook.telemetry.frame import InputKind
from tnt_notebook.telemetry.late_rank import last_rank, late_by, others_than
from tnt_notebook.telemetry.uneven_stages import with_less

#: Ranks that wait for input for so much of a step are limited by it.
WAITS_FOR_INPUT = 0.15
#: The part of samples that has to agree; where fewer than `_SURE` do, the sentence says how many.
_AGREE, _SURE = 0.6, 0.9
#: A rank with so many times the work of the others holds them up, if it is so much of a step.
_SLOWER, _HELD_UP = 1.2, 0.1
#: A link is slow if messages are under way, and waited for, during so much of a step; or, between
#: hosts, if a rank sends fewer bytes a second.
_UNDER_WAY, _SLOW_LINK = 0.15, 500e6
#: Seconds of a step that is about as short as what Keras and ``tf.data`` do around it.
_SHORT_S = 2.5e-3


class Limit(NamedTuple):
    """What limits training.

    Attributes:
        cause: in a word or two, the same in all runs.
        share: of a step, 0 to 1, in the mean of ranks and samples.
        agreeing: the part of the samples in which it is there, 0 to 1.
        sentence: for a person.
    """

    cause: str
    share: float
    agreeing: float
    sentence: str


class _Said(NamedTuple):
    cause: str
    sentence: str


@dataclass(frozen=True)
class _Situation:
    """A part of a step that may be worth a sentence.

    Attributes:
        share: what it is of a step, 0 to 1, given where the time of one goes on each rank.
        worth: the least share worth a sentence.
        say: what is behind it.
    """

    share: Callable[[Sequence[Breakdown]], float]
    worth: float
    say: Callable[[str, Evidence], _Said]


def limit(evidence: Evidence) -> Limit | None:
    """What limits training most; None where nothing is worth a sentence, or too little is known."""
    samples = evidence.samples
    if len(samples) < (1 if evidence.ended else LEAST_SAMPLES):
        return None
    of_ranks = evidence.of_ranks
    found = [(each.share(of_ranks), each) for each in _SITUATIONS]
    found = [(share, each) for share, each in found if share >= each.worth]
    if not found:
        return None
    share, most = max(found, key=lambda one: one[0])
    if most is _LATE and _waits_for_input(of_ranks):
        share, most = _INPUT.share(of_ranks), _INPUT
    agreeing = fmean(most.share(sample) >= most.worth for sample in samples)
    if agreeing < _AGREE:
        return None
    cause, sentence = most.say(f"{share:.0%}", evidence)
    if agreeing < _SURE:
        sentence += f" So it was in {round(10 * agreeing)} of 10 sampled steps."
    return Limit(cause, share, agreeing, sentence)


def _part(name: str) -> Callable[[Sequence[Breakdown]], float]:
    return lambda of_ranks: shares(of_ranks)[name]


def _around(of_ranks: Sequence[Breakdown]) -> float:
    """The part of a short step that is not the model's; 0 of a longer one."""
    part = shares(of_ranks)
    return part["input"] + part["other"] if step_s(of_ranks) < _SHORT_S else 0.0


def _skew(of_ranks: Sequence[Breakdown]) -> float:
    """What ranks wait for the last one; in the mean of the others where it is always the same."""
    last = last_rank(of_ranks)
    waiting = [b for rank, b in enumerate(of_ranks) if rank != last]
    return shares(waiting)["skew"] if waiting else 0.0


def _waits_for_input(of_ranks: Sequence[Breakdown]) -> bool:
    """Whether ranks that wait for others wait for the input of those. Where input is slow on all,
    one gets its batches a little later than the others: it alone waits for input then, and they
    for it."""
    if _INPUT.share(of_ranks) < _INPUT.worth:
        return False
    last = last_rank(of_ranks)
    return last is None or late_by(of_ranks, last) == "input"


_READ_AHEAD: dict[InputKind, str] = {
    "arrays": "batches are cut from the arrays; larger batches are cut less often.",
    "tf.data": (
        "end the dataset with .prefetch(tf.data.AUTOTUNE), map with "
        "num_parallel_calls=tf.data.AUTOTUNE, or keep what is made with .cache()."
    ),
    "PyDataset": "give it more workers (workers=4), or let it make less.",
    "DataLoader": "give it more num_workers, or let its dataset make less.",
    "generator": (
        "a generator makes one batch after the other. A keras.utils.PyDataset with workers=4, or "
        "tf.data, makes several at a time."
    ),
    "other": "let it read ahead, or make less.",
}


def _input(share: str, evidence: Evidence) -> _Said:
    what = f"Ranks wait for input during {share} of a step"
    if evidence.input_of_all:
        return _Said(
            "input made by all",
            f"{what}, and {evidence.input_of_all}. Let each map its own samples only: in tf.data "
            "shuffle and filter first, then map, and batch last; a PyDataset can have rows_of.",
        )
    return _Said("input", f"{what}: {_READ_AHEAD[evidence.setup['input']]}")


def _short_steps(share: str, evidence: Evidence) -> _Said:
    return _Said(
        "short steps",
        f"{share} of a step is input, optimizer and Python: steps are shorter than Keras's own "
        f"loop around them. To train faster, {_rarer(evidence)}.",
    )


def _rarer(evidence: Evidence) -> str:
    """How Keras's own loop comes to its turn less often for as many samples."""
    often = evidence.setup["per_execution"] == 1
    return f"use larger batches{', or steps_per_execution=8 in compile()' if often else ''}"


def _conversion(share: str, _: Evidence) -> _Said:
    return _Said(
        "conversions",
        f"Values move from layout to layout during {share} of a step: %tnt_plan --mesh says before "
        "which layers. Larger samples or batches, or other axes, lower that.",
    )


def _wait(share: str, evidence: Evidence) -> _Said:
    """Ranks of a pipeline that wait: for the network, for the one with most work, or for the
    pipeline to fill and drain."""
    of_ranks = evidence.of_ranks
    held_up, slow = _held_up(of_ranks)
    on_the_way, (sender, receiver) = _on_the_way(evidence)
    if on_the_way > max(_UNDER_WAY, held_up):
        slow_link = "the link between them is slow. " if evidence.setup["hosts"] > 1 else ""
        return _Said(
            "messages",
            f"Rank {receiver} waits during {on_the_way:.0%} of a step for messages that are on "
            f"their way from rank {sender}: {slow_link}{'C' if slow_link else 'c'}ut the model "
            "where less goes from stage to stage, or use fewer micro-batches.",
        )
    if held_up > _HELD_UP:
        work = [b.work for b in of_ranks]
        times = work[slow] / fmean(work[:slow] + work[slow + 1 :])
        others = f"rank {1 - slow}, which waits" if len(work) == 2 else "the others, which wait"
        step = evidence.traces[-1] if evidence.traces else None
        return _Said(
            "uneven stages",
            f"Rank {slow} has {times:.1f} times the work of {others} for it: "
            f"{with_less(slow, work, step)}",
        )
    return _Said("bubble", _idle(share, evidence))


def _held_up(of_ranks: Sequence[Breakdown]) -> tuple[float, int]:
    """For how much of a step ranks of a pipeline wait for the one with most work, and which."""
    work = [b.work for b in of_ranks]
    slow = max(range(len(work)), key=work.__getitem__)
    others = fmean(work[:slow] + work[slow + 1 :] or [0.0])
    if not others or work[slow] < _SLOWER * others:
        return 0.0, slow
    return (work[slow] - others) / of_ranks[slow].step, slow


def _on_the_way(evidence: Evidence) -> tuple[float, tuple[int, int]]:
    """For how much of a step a rank waits for messages that are under way already, on the link of
    a pipeline where that is longest."""
    seconds: dict[tuple[int, int], list[float]] = defaultdict(list)
    for step in evidence.traces:
        for link, s in messages_of(step).items():
            seconds[link].append(s / step["seconds"] / len(evidence.traces))
    longest = max(seconds, key=lambda link: sum(seconds[link]), default=(0, 0))
    return sum(seconds.get(longest, [0.0])), longest


def _idle(share: str, evidence: Evidence) -> str:
    """Of a pipeline whose ranks wait, but not for the network."""
    what = f"Ranks of the pipeline wait for each other during {share} of a step"
    step = evidence.traces[-1] if evidence.traces else None
    idle = [list(idle_of(each).values()) for each in evidence.traces]
    if step is None or not all(idle):
        return f"{what}: use more micro-batches, or another schedule."
    ends = fmean(
        fmean(one.fill + one.drain for one in of_ranks) / each["seconds"]
        for of_ranks, each in zip(idle, evidence.traces, strict=True)
    )
    formula = f" ({step['formula']:.0%} by the formula)" if "formula" in step else ""
    other = f", or schedule {step['less_idle']}" if "less_idle" in step else ""
    return f"{what}, {ends:.0%} to fill and drain it{formula}: use more micro-batches{other}."


def _late(share: str, evidence: Evidence) -> _Said:
    """Ranks that wait at exchanges: for one that is always the last, or now for one and now for
    another."""
    of_ranks, setup = evidence.of_ranks, evidence.setup
    last, per_core = last_rank(of_ranks), setup["ranks_per_core"]
    shared = ""
    if per_core > 1:
        fewer = int(len(of_ranks) / per_core)
        shared = f"{per_core:.2g} ranks share a core: start {fewer}"
    if last is None:
        why = shared or "their samples, or their machines, take now longer and now shorter"
        return _Said("uneven steps", f"Ranks wait for each other during {share} of a step: {why}.")
    own, rest = of_ranks[last], others_than(of_ranks, last)
    who = f"Rank {1 - last} waits" if len(of_ranks) == 2 else "Ranks wait"
    what = f"{who} during {share} of a step for rank {last}"
    reasons = {
        "input": ("late input", "its input comes later"),
        "work": ("slow rank", _slow(own, rest, shared)),
        "other": (
            "busy rank",
            "it is busy outside of its steps, as with callbacks or Python's garbage collection",
        ),
    }
    cause, why = reasons[late_by(of_ranks, last)]
    return _Said(cause, f"{what}: {why}.")


def _slow(own: Breakdown, rest: Breakdown, shared: str) -> str:
    times = own.work / rest.work if rest.work else 1.0
    longer = f"it works {times:.1f} times as long" if times >= _SLOWER else "it works longer"
    if shared:
        return f"{longer}, as {shared}"
    return f"{longer}. Its machine may be slower, or busy with something else"


def _exchange(share: str, evidence: Evidence) -> _Said:
    setup, rate = evidence.setup, evidence.rate
    what = f"{share} of a step is exchange of {setup['exchanged']} that nothing hides"
    if setup["hosts"] > 1 and rate is not None and rate < _SLOW_LINK:
        return _Said(
            "slow network",
            f"{what}: the link between hosts is slow, a rank sends {size(rate)} a second. Make "
            "batches larger, so that there is less to exchange for each sample, or let ranks "
            "send less: --exchange powersgd, for instance.",
        )
    return _Said("exchange", f"{what}: larger batches exchange less for each sample.")


def _other(share: str, evidence: Evidence) -> _Said:
    return _Said(
        "outside of the model",
        f"{share} of a step is optimizer, metrics, callbacks and Python: {_rarer(evidence)}.",
    )


_INPUT = _Situation(_part("input"), WAITS_FOR_INPUT, _input)
_LATE = _Situation(_skew, 0.15, _late)
_SITUATIONS = (
    _Situation(_around, 0.4, _short_steps),
    _INPUT,
    _Situation(_part("conversion"), 0.3, _conversion),
    _Situation(_part("wait"), 0.25, _wait),
    _LATE,
    _Situation(_part("exchange"), 0.2, _exchange),
    _Situation(_part("other"), 0.35, _other),
)
