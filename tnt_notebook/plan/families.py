"""The schedules that come with tnt_notebook, each a function that makes one.

With times F, I, W of a rank's forward, input gradient and weight gradient of one micro-batch (all
its stages together), p ranks and m micro-batches, the ranks of each are idle for:

==============  ===========================  =====================================================
``gpipe``       (p - 1) (F + I + W)          holds all micro-batches
``1f1b``        (p - 1) (F + I + W)          holds p micro-batches at most
``interleaved`` (p - 1) (F + I + W) / v      v stages a rank; m a multiple of p
``zb-h1``       (p - 1) (F + I - W)          weight gradients fill the end; m >= p, W <= F, I
``zb-v``        (p - 1) F / 2                two stages a rank; F = I = W, m >= 2p - 1
==============  ===========================  =====================================================

Sources: GPipe (Huang et al. 2019); 1F1B: PipeDream-Flush (Narayanan et al. 2021, "Memory-Efficient
Pipeline-Parallel DNN Training"); interleaved: Megatron-LM (Narayanan et al. 2021, "Efficient
Large-Scale Language Model Training on GPU Clusters", 2.2); ZB-H1: Qi et al. 2023, "Zero Bubble
Pipeline Parallelism", 2.3; ZB-V: Qi et al. 2024, "Pipeline Parallelism with Controllable Memory".

All but GPipe hold as many micro-batches on a rank as :func:`held_at_most` says, and any number of
micro-batches works: a schedule for more stays valid when what belongs to the last ones is left out.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from itertools import zip_longest

from tnt_notebook.errors import ScheduleError
from tnt_notebook.plan.schedule import Action, Kind, Schedule, check

#: Makes a schedule of so many ranks, micro-batches, and stages a rank.
Family = Callable[[int, int, int], Schedule]


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
    _check_stages("1f1b", stages_per_rank, 1)
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
    _check_stages("zb-h1", stages_per_rank, 1)
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

    Where a forward, an input gradient and a weight gradient take the same time, a rank that has
    begun is never idle.
    """
    _check_stages("zb-v", stages_per_rank, 2)
    count = max(micro_batches, 2 * ranks - 1)
    actions = [_v_of_rank(rank, ranks, count) for rank in range(ranks)]
    rank_of = (*range(ranks), *reversed(range(ranks)))
    return _schedule("zb-v", rank_of, micro_batches, actions)


FAMILIES: dict[str, Family] = {
    "gpipe": gpipe,
    "1f1b": one_f_one_b,
    "interleaved": interleaved,
    "zb-h1": zb_h1,
    "zb-v": zb_v,
}

#: Stages a rank has unless more are asked for.
USUAL_STAGES = {"interleaved": 2, "zb-v": 2}


def make(
    schedule: str | Family, ranks: int, micro_batches: int, stages_per_rank: int | None = None
) -> Schedule:
    """A checked schedule.

    Args:
        schedule: a name in :data:`FAMILIES`, or a function of one's own.
        stages_per_rank: default: 2 for ``interleaved`` and ``zb-v``, else 1.

    Raises:
        ScheduleError: there is no such schedule, or it is not one.
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
    else:
        family = schedule
    usual = USUAL_STAGES.get(schedule, 1) if isinstance(schedule, str) else 1
    made = family(ranks, micro_batches, stages_per_rank or usual)
    if not isinstance(made, Schedule):
        raise ScheduleError(
            f"{getattr(family, '__name__', family)} gave a {type(made).__name__} instead of a "
            "tnt_notebook.plan.Schedule."
        )
    check(made)
    return made


def idle_time(
    name: str, ranks: int, forward: float, inputs: float, weights: float, stages_per_rank: int = 1
) -> float:
    """How long a rank of a named schedule is idle in a step: the table above, in seconds."""
    whole = forward + inputs + weights
    return (ranks - 1) * {
        "gpipe": whole / stages_per_rank,
        "1f1b": whole,
        "interleaved": whole / stages_per_rank,
        "zb-h1": forward + inputs - weights,
        "zb-v": forward / 2,
    }[name]


def bubble_by_formula(
    name: str,
    ranks: int,
    micro_batches: int,
    forward: float,
    inputs: float,
    weights: float,
    stages_per_rank: int = 1,
) -> float | None:
    """The part of a step that a rank is idle, by the table above; None for other schedules.

    Args:
        forward, inputs, weights: of a rank and a micro-batch, all its stages together.
    """
    if name not in FAMILIES:
        return None
    # zb-h1 cannot do more than fill the end with weight gradients.
    idle = max(0.0, idle_time(name, ranks, forward, inputs, weights, stages_per_rank))
    whole = idle + micro_batches * (forward + inputs + weights)
    return idle / whole if whole else 0.0


def held_at_most(name: str, rank: int, ranks: int, micro_batches: int, stages_per_rank: int) -> int:
    """How many pairs of stage and micro-batch a rank of a named schedule holds at most."""
    behind = ranks - rank - 1
    most = {
        "gpipe": micro_batches * stages_per_rank,
        "1f1b": behind + 1,
        "interleaved": behind + 1
        if stages_per_rank == 1
        else 2 * behind + (stages_per_rank - 1) * ranks + 1,
        "zb-h1": ranks,
        "zb-v": 2 * ranks,
    }[name]
    return min(most, micro_batches * stages_per_rank)


def _in_a_loop(ranks: int, stages_per_rank: int) -> tuple[int, ...]:
    if stages_per_rank < 1:
        raise ScheduleError(f"A rank has at least one stage, not {stages_per_rank}.")
    return tuple(stage % ranks for stage in range(ranks * stages_per_rank))


def _check_stages(name: str, stages_per_rank: int, possible: int) -> None:
    if stages_per_rank != possible:
        raise ScheduleError(
            f"Schedule {name} has {possible} stage{'s' * (possible > 1)} a rank, not "
            f"{stages_per_rank}."
        )


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
