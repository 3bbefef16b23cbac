"""The schedules that come with tnt_notebook, each a function that makes one and its entry below.

Any number of micro-batches works: a schedule for more stays valid when what belongs to the last
ones is left out.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from itertools import zip_longest

from tnt_notebook.errors import ScheduleError
from tnt_notebook.plan.family import Family, Maker
from tnt_notebook.plan.schedule import Action, Kind, Schedule, check


def gpipe(ranks: int, micro_batches: int, stages_per_rank: int = 1) -> Schedule:
    """All forwards, then all backwards."""
    rank_of = _in_a_loop(ranks, stages_per_rank)
    micros = range(micro_batches)
    actions = []
    for rank in range(ranks):
        own = range(rank, len(rank_of), ranks)
        actions.append(_of_all("F", own, micros) + _of_all("B", own[::-1], micros))
    return _schedule("gpipe", rank_of, micro_batches, actions)


def one_f_one_b(ranks: int, micro_batches: int, stages_per_rank: int = 1) -> Schedule:
    """A backward as soon as there is one: no rank holds more micro-batches than ranks follow it."""
    micros = range(micro_batches)
    actions = []
    for rank in range(ranks):
        forward, backward = _of_all("F", [rank], micros), _of_all("B", [rank], micros)
        actions.append(_one_by_one(forward, backward, ahead=ranks - rank - 1))
    return _schedule("1f1b", _in_a_loop(ranks, 1), micro_batches, actions)


def interleaved(ranks: int, micro_batches: int, stages_per_rank: int = 2) -> Schedule:
    """1F1B with several stages a rank, which shortens the way to the last rank and back."""
    # In groups of as many micro-batches as there are ranks, each group through a stage after the
    # other: that keeps every rank busy while a group goes round.
    count = -(-micro_batches // ranks) * ranks
    groups = [range(first, first + ranks) for first in range(0, count, ranks)]
    actions = []
    for rank in range(ranks):
        own = [chunk * ranks + rank for chunk in range(stages_per_rank)]
        forward = [action for group in groups for action in _of_all("F", own, group)]
        backward = [action for group in groups for action in _of_all("B", own[::-1], group)]
        ahead = ranks - rank - 1
        if stages_per_rank > 1:
            ahead = 2 * ahead + (stages_per_rank - 1) * ranks
        actions.append(_one_by_one(forward, backward, ahead))
    return _schedule("interleaved", _in_a_loop(ranks, stages_per_rank), micro_batches, actions)


def zb_h1(ranks: int, micro_batches: int, stages_per_rank: int = 1) -> Schedule:
    """1F1B whose weight gradients wait until there is nothing more urgent, within its memory."""
    micros = range(micro_batches)
    actions = []
    for rank in range(ranks):
        forward, inputs = _of_all("F", [rank], micros), _of_all("I", [rank], micros)
        steady = _one_by_one(forward, inputs, ahead=ranks - rank - 1)
        # A rank that starts late holds fewer micro-batches, so it can put off more weights.
        actions.append(_put_off(steady, _of_all("W", [rank], micros), by=rank))
    return _schedule("zb-h1", _in_a_loop(ranks, 1), micro_batches, actions)


def zb_v(ranks: int, micro_batches: int, stages_per_rank: int = 2) -> Schedule:
    """Two stages a rank, the second half of the model on the way back: rank 0 has the last stage.
    Where F, I and W take the same time, a rank that has begun is never idle."""
    count = max(micro_batches, 2 * ranks - 1)
    actions = [_v_of_rank(rank, ranks, count) for rank in range(ranks)]
    rank_of = (*range(ranks), *reversed(range(ranks)))
    return _schedule("zb-v", rank_of, micro_batches, actions)


FAMILIES = {
    family.name: family
    for family in (
        Family(
            "gpipe", gpipe, "all forwards, then all backwards",
            lambda p, f, i, w, v: (p - 1) * (f + i + w) / v, "(p - 1) (F + B) / v",
            lambda rank, p, m, v: m * v, "all micro-batches",
            "GPipe (Huang et al. 2019)",
            any_stages=True, exact=lambda p, m, v: v == 1 or m >= p,
        ),
        Family(
            "1f1b", one_f_one_b, "a backward as soon as there is one",
            lambda p, f, i, w, v: (p - 1) * (f + i + w), "(p - 1) (F + B)",
            lambda rank, p, m, v: p - rank, "p micro-batches",
            "PipeDream-Flush (Narayanan et al. 2021, Memory-Efficient Pipeline-Parallel Training)",
        ),
        Family(
            "interleaved", interleaved, "1F1B with v stages a rank",
            lambda p, f, i, w, v: (p - 1) * (f + i + w) / v, "(p - 1) (F + B) / v",
            lambda rank, p, m, v: p - rank if v == 1 else 2 * (p - rank) - 1 + (v - 1) * p,
            "about p (1 + 1/v) of them",
            "Megatron-LM (Narayanan et al. 2021, Large-Scale Language Model Training, 2.2)",
            stages_per_rank=2, any_stages=True, exact=lambda p, m, v: m % p == 0,
        ),
        Family(
            "zb-h1", zb_h1, "backward in two halves, the second where there is time",
            lambda p, f, i, w, v: (p - 1) * (f + i - w), "(p - 1) (F + I - W)",
            lambda rank, p, m, v: p, "p",
            "Zero Bubble Pipeline Parallelism (Qi et al. 2023, 2.3)",
            exact=lambda p, m, v: m >= p,
        ),
        Family(
            "zb-v", zb_v, "two stages a rank, there and back",
            lambda p, f, i, w, v: (p - 1) * f / 2, "(p - 1) F / 2",
            lambda rank, p, m, v: 2 * p, "p",
            "Pipeline Parallelism with Controllable Memory (Qi et al. 2024)",
            stages_per_rank=2, exact=lambda p, m, v: m >= 2 * p - 1,
        ),
    )
}  # fmt: skip


def make(
    schedule: str | Maker, ranks: int, micro_batches: int, stages_per_rank: int | None = None
) -> Schedule:
    """A checked schedule. Raises ScheduleError if there is no such schedule, or it is not one.

    Args:
        schedule: a name in :data:`FAMILIES`, or a function of one's own.
        stages_per_rank: default: what the family usually has; 1 for a function.
    """
    if ranks < 1 or micro_batches < 1:
        raise ScheduleError(
            f"A pipeline needs at least one rank and one micro-batch, not {ranks} and "
            f"{micro_batches}."
        )
    if isinstance(schedule, str):
        family = FAMILIES.get(schedule.lower())
        if family is None:
            raise ScheduleError(
                f"There is no schedule {schedule!r}. There are {', '.join(FAMILIES)}, and any "
                "function that makes one."
            )
        made = family.make(ranks, micro_batches, family.stages(stages_per_rank))
    else:
        made = schedule(ranks, micro_batches, stages_per_rank or 1)
    if not isinstance(made, Schedule):
        raise ScheduleError(
            f"{getattr(schedule, '__name__', schedule)} gave a {type(made).__name__} instead of a "
            "tnt_notebook.plan.Schedule."
        )
    check(made)
    return made


def bubble_by_formula(
    schedule: Schedule, forward: float, inputs: float, weights: float
) -> float | None:
    """The part of a step that a rank is idle, 0 to 1, by times of a rank and a micro-batch, all its
    stages together; None for a schedule of one's own."""
    family = FAMILIES.get(schedule.name)
    if family is None:
        return None
    v = schedule.stages // schedule.ranks
    # zb-h1 cannot do more than fill the end with weight gradients.
    idle = max(0.0, family.idle(schedule.ranks, forward, inputs, weights, v))
    whole = idle + schedule.micro_batches * (forward + inputs + weights)
    return idle / whole if whole else 0.0


def less_idle(name: str) -> str | None:
    """The schedule of one stage a rank that is idle least, if that is less than a named one is."""

    def idle(family: Family) -> float:
        return family.idle(2, 1.0, 1.0, 1.0, family.stages_per_rank)

    best = min((f for f in FAMILIES.values() if f.stages_per_rank == 1), key=idle)
    return best.name if name not in FAMILIES or idle(best) < idle(FAMILIES[name]) else None


def _in_a_loop(ranks: int, stages_per_rank: int) -> tuple[int, ...]:
    return tuple(stage % ranks for stage in range(ranks * stages_per_rank))


def _of_all(kind: Kind, stages: Iterable[int], micros: Iterable[int]) -> list[Action]:
    """All micro-batches through one stage after the other."""
    return [Action(kind, stage, micro) for stage in stages for micro in micros]


def _one_by_one(forward: list[Action], backward: list[Action], ahead: int) -> list[Action]:
    """Some forwards first, then forward and backward in turn, then the backwards that are left."""
    ahead = min(ahead, len(forward))
    pairs = zip_longest(forward[ahead:], backward)
    return [*forward[:ahead], *(action for pair in pairs for action in pair if action)]


def _put_off(actions: list[Action], weights: list[Action], by: int) -> list[Action]:
    """Puts each weight gradient ``by`` input gradients later than its own."""
    result, due = [], 0
    for action in actions:
        result.append(action)
        if action.kind == "I":
            due += 1
            if due > by:
                result.append(weights[due - by - 1])
    return result + weights[max(0, due - by) :]


def _v_of_rank(rank: int, ranks: int, count: int) -> list[Action]:
    """The order of one rank for ``count`` >= 2 ranks - 1 micro-batches (Qi et al. 2024)."""
    there, back = rank, 2 * ranks - 1 - rank
    done: dict[tuple[Kind, int], int] = defaultdict(int)
    actions: list[Action] = []

    def do(stage: int, *kinds: Kind) -> None:
        """The next micro-batch of each kind."""
        for kind in kinds:
            actions.append(Action(kind, stage, done[kind, stage]))
            done[kind, stage] += 1

    # Until the first micro-batch is back from the last rank of the V.
    for _ in range(2 * (ranks - rank) - 1):
        do(there, "F")
    for _ in range(rank):
        do(back, "F")
        do(there, "F")
    for _ in range(ranks - rank):
        do(back, "F", "I", "W")
    # One of everything, both ways.
    while done["F", there] < count:
        do(there, "F", "I", "W")
        do(back, "F", "I", "W")
    while done["F", back] < count:
        do(there, "I", "W")
        do(back, "F", "I", "W")
    # Input gradients are urgent again, and weight gradients fill the end.
    for _ in range(rank):
        do(there, "I")
        do(back, "I")
    for _ in range(ranks - rank):
        do(there, "I", "W")
    for stage in (back, there):
        while done["W", stage] < done["I", stage]:
            do(stage, "W")
    return actions


def _schedule(
    name: str, rank_of: tuple[int, ...], micro_batches: int, actions: Iterable[Iterable[Action]]
) -> Schedule:
    """Leaves out what belongs to micro-batches that there are not."""
    return Schedule(
        name,
        rank_of,
        micro_batches,
        tuple(tuple(a for a in of_rank if a.micro < micro_batches) for of_rank in actions),
    )
