"""What limits training, in a sentence that says what to do."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from statistics import fmean

from tnt_notebook.sizes import size
from tnt_notebook.telemetry.breakdown import PARTS, Breakdown
from tnt_notebook.telemetry.bubble import idle_of, messages_of
from tnt_notebook.telemetry.step_trace import ACTIONS, StepTrace, by_rank, replicas

#: Parts of a step above which they are worth a sentence.
_INPUT, _WAIT, _SKEW, _EXCHANGE, _OTHER = 0.15, 0.25, 0.2, 0.2, 0.35
_CONVERSION = 0.3
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
    input: str = "",
) -> str:
    """What limits training most.

    Args:
        of_ranks: a step of each rank; not empty.
        sharing: ranks that process the same samples, those of a pipeline; without, 1.
        step: that step, which tells more.
        rate: bytes a second that a rank sends while gradients are exchanged between hosts; None on
            one host.
        input: why every rank does the work of input for all of them; empty: each does its own.
    """
    part = shares(of_ranks)
    if part["input"] > _INPUT:
        return _input(part["input"], input)
    (held_up, rank), (on_the_way, link) = _held_up(of_ranks, sharing, step), _on_the_way(step)
    if on_the_way > max(_UNDER_WAY, held_up):
        return link
    # Beside a slow link a rank that is a little late is not what limits.
    if held_up > max(_HELD_UP, part["exchange"]):
        return rank
    if part["conversion"] > _CONVERSION:
        return (
            f"Values are on their way from layout to layout during {part['conversion']:.0%} of a "
            "step: %tnt_plan --mesh says before which layers. Larger samples or batches, or other "
            "axes, lower that."
        )
    if part["wait"] > _WAIT:
        return _idle(part["wait"], step)
    waited_for, late = _waited_for(of_ranks)
    if waited_for > max(_SKEW, part["exchange"]):
        return late
    if part["exchange"] > _EXCHANGE:
        what = f"{part['exchange']:.0%} of a step is exchange of gradients that nothing hides"
        if rate is not None and rate < _SLOW_LINK:
            return (
                f"{what}: the link between hosts is slow, a rank sends {size(rate)} a second. Make "
                "batches larger, so that there is less to exchange for each sample, or let ranks "
                "send less: --exchange powersgd, for instance."
            )
        return f"{what}: make batches larger."
    if part["other"] > _OTHER:
        return (
            f"{part['other']:.0%} of a step is optimizer, metrics and Python: make batches "
            "larger, or run several steps per execution."
        )
    return f"Ranks work for {part['work']:.0%} of a step."


def _input(share: float, why: str) -> str:
    what = f"Ranks wait for input during {share:.0%} of a step"
    if why:
        return (
            f"{what}, and {why}. Let each map its own samples only: in tf.data shuffle and filter "
            "first, map then, and make batches at last; a PyDataset can have rows_of."
        )
    return f"{what}: let it be read ahead (.prefetch, .cache of a dataset), or be cheaper to make."


def _on_the_way(step: StepTrace | None) -> tuple[float, str]:
    """The link of a pipeline that is waited for longest: for how much of a step, in a sentence."""
    links = messages_of(step) if step else {}
    if step is None or not links:
        return 0.0, ""
    (sender, receiver), seconds = max(links.items(), key=lambda link: link[1])
    share = seconds / step["seconds"]
    return share, (
        f"Rank {receiver} waits during {share:.0%} of a step for messages that are on their way "
        f"from rank {sender}: the link between them is slow. Cut the model where less goes from "
        "stage to stage, or use fewer micro-batches."
    )


def _held_up(
    of_ranks: Sequence[Breakdown], sharing: int, step: StepTrace | None
) -> tuple[float, str]:
    """The rank with most work: for how much of a step others wait for it, in a sentence."""
    work = [b.work for b in of_ranks]
    slow = max(range(len(work)), key=work.__getitem__)
    rest = work[:slow] + work[slow + 1 :]
    others = fmean(rest) if rest else 0.0
    if not others or work[slow] < _SLOWER * others:
        return 0.0, ""
    times = f"{work[slow] / others:.1f} times"
    sentence = (
        f"Rank {slow} works {times} as long as the others, which wait for it: is its machine "
        "slower, or busy with something else?"
    )
    if sharing > 1:
        what = f"Rank {slow} has {times} the work of the others, which wait for it"
        sentence = f"{what}: {_with_less(slow, work, step)}"
    return (work[slow] - others) / of_ranks[slow].step, sentence


def _with_less(slow: int, work: Sequence[float], step: StepTrace | None) -> str:
    """What to do so that a rank of a pipeline has less work: which layer goes where.

    Args:
        work: of all ranks, in seconds.
    """
    move = _move(slow, work, step) if step else None
    if step is None or move is None:
        return "give its stage fewer layers."
    stage, to_stage, to_rank = move
    first, last = step["layers"][stage]
    if first == last:
        return f"its stage is one layer, {first}, which cannot be cut: train with fewer stages."
    later = to_stage > stage
    layer, end = (last, "last") if later else (first, "first")
    if step.get("cut_by") == "cut_at":
        begins = f"with {layer}" if later else f"behind {layer}"
        whose = f"rank {to_rank}'s" if later else "its"
        return f"in cut_at, let {whose} stage begin {begins}."
    if step.get("cut_by") == "SplitLayer":
        return f"put the SplitLayer {'before' if later else 'behind'} {layer}."
    # Measured times have made stages alike: it may as well be the machine.
    return (
        f"move {layer}, the {end} layer of its stage, to rank {to_rank}; or is its machine slower, "
        "or busy with something else?"
    )


def _move(slow: int, work: Sequence[float], step: StepTrace) -> tuple[int, int, int] | None:
    """Which stage of a rank should give a layer to which stage of which rank: to the neighbour
    with least work. None where the step does not tell."""
    pipeline = next((ranks for ranks in replicas(step) if slow in ranks), ())
    took: dict[tuple[int, int], float] = defaultdict(float)  # by stage and rank
    for rank, own in by_rank(step).items():
        for box in own:
            if rank in pipeline and box.kind in ACTIONS:
                took[box.stage, rank] += box.end - box.begin
    own_stages = [stage for stage, rank in took if rank == slow]
    if not own_stages or len(step.get("layers", [])) <= max(stage for stage, _ in took):
        return None
    stage = max(own_stages, key=lambda stage: took[stage, slow])
    beside = [(work[rank], s, rank) for s, rank in took if abs(s - stage) == 1 and rank != slow]
    return (stage, *min(beside)[1:]) if beside else None


def _waited_for(of_ranks: Sequence[Breakdown]) -> tuple[float, str]:
    """The rank that comes last to exchanges, though it has hardly more work than the others: for
    how much of a step they wait for it, in a sentence."""
    last = min(range(len(of_ranks)), key=lambda rank: of_ranks[rank].skew)
    own, rest = of_ranks[last], [*of_ranks[:last], *of_ranks[last + 1 :]]
    if not rest or not own.step:
        return 0.0, ""
    share = fmean(b.skew for b in rest) / own.step
    reasons = {
        "input": "its input comes later than theirs",
        "work": "it works longer",
        "other": "it is busy beside the step, as with callbacks or Python's garbage collection",
    }
    more = {part: getattr(own, part) - fmean(getattr(b, part) for b in rest) for part in reasons}
    why = reasons[max(more, key=lambda part: more[part])]
    return share, f"Ranks wait during {share:.0%} of a step for rank {last}, the last one: {why}."


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
