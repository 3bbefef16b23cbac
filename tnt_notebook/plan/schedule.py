"""Pipeline schedules as data: for each rank, what it does in which order.

    rank 0   F0.0 F0.1 B0.0 F0.2 B0.1 ... B0.2        F0.1: forward of micro-batch 1 on stage 0
    rank 1        F1.0 B1.0 F1.1 B1.1 F1.2 B1.2       B1.0: its backward there

The same list is executed by the runtime, checked here, timed by :mod:`.simulate`, and drawn beside
what was measured. A function that makes one is all that a new schedule needs: see :mod:`.families`.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Container, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from tnt_notebook.errors import ScheduleError

#: ``F`` forward; ``B`` backward, whole; or in two halves: ``I``, the gradient of the stage's input,
#: which the stage before waits for, and ``W``, that of its weights, which nobody waits for.
Kind = Literal["F", "B", "I", "W"]

#: Which stages use what a stage makes: pairs (maker, user), maker < user.
Edges = Sequence[tuple[int, int]]


class Action(NamedTuple):
    """One micro-batch through one stage, in one direction."""

    kind: Kind
    stage: int
    micro: int

    def __str__(self) -> str:
        return f"{self.kind}{self.stage}.{self.micro}"


class Placed(NamedTuple):
    """An action on its rank, in an order in which all can happen.

    Attributes:
        after: places in that order of what must have happened before, but for the rank's own.
    """

    rank: int
    action: Action
    after: tuple[int, ...]


#: By how many micro-batches an action changes what its stage has under way.
_UNDER_WAY = {"F": 1, "B": -1, "I": 0, "W": -1}


@dataclass(frozen=True)
class Schedule:
    """What each rank of a pipeline does.

    Attributes:
        name: of the family, or of the function that made it.
        rank_of: the rank of each stage; a rank may have several.
        micro_batches: how many a batch is cut into.
        actions: of each rank, in order.
    """

    name: str
    rank_of: tuple[int, ...]
    micro_batches: int
    actions: tuple[tuple[Action, ...], ...]

    @property
    def ranks(self) -> int:
        """How many ranks it is for."""
        return len(self.actions)

    @property
    def stages(self) -> int:
        """How many stages there are, on all ranks together."""
        return len(self.rank_of)

    def stages_of(self, rank: int) -> list[int]:
        """The stages whose weights lie on a rank."""
        return [stage for stage, owner in enumerate(self.rank_of) if owner == rank]

    def splits_backward(self) -> bool:
        """Whether any backward is done in two halves."""
        return any(action.kind == "I" for actions in self.actions for action in actions)

    def order(self, edges: Edges | None = None) -> Sequence[Placed]:
        """All actions, each after what it needs, where each stage uses what the one before makes,
        or by ``edges``. Raises ScheduleError where ranks wait for each other."""
        key = tuple(chain(self.stages) if edges is None else edges)
        if key not in self._orders:
            self._orders[key] = _in_order(self, key)
        return self._orders[key]

    @functools.cached_property
    def _orders(self) -> dict[Edges, list[Placed]]:
        return {}

    def held(self) -> list[int]:
        """The most pairs of stage and micro-batch whose activations each rank holds at a time."""
        return [round(self.peak(rank, [1] * self.stages)) for rank in range(self.ranks)]

    def held_by_stage(self) -> list[int]:
        """The most micro-batches that each stage has under way at a time."""
        now, most = [0] * self.stages, [0] * self.stages
        for actions in self.actions:
            for kind, stage, _ in actions:
                now[stage] += _UNDER_WAY[kind]
                most[stage] = max(most[stage], now[stage])
        return most

    def peak(self, rank: int, held: Sequence[float]) -> float:
        """The most that a rank holds at a time, where a micro-batch on stage ``s`` is ``held[s]``:
        from a forward to the end of its backward (the weight gradient)."""
        now = peak = 0.0
        for kind, stage, _ in self.actions[rank]:
            now += _UNDER_WAY[kind] * held[stage]
            peak = max(peak, now)
        return peak


def chain(stages: int) -> list[tuple[int, int]]:
    """The edges of a model without skip connections between stages."""
    return [(stage, stage + 1) for stage in range(stages - 1)]


def check(schedule: Schedule, edges: Edges | None = None) -> None:
    """Proves that a schedule does all of a step, each part once, on its rank, and comes to an end,
    where each stage uses what the one before makes, or by ``edges``. Raises ScheduleError, which
    says what is wrong, with the ranks and actions concerned."""
    _check_complete(schedule)
    schedule.order(edges)


def _in_order(schedule: Schedule, edges: Edges) -> list[Placed]:
    makers: list[list[int]] = [[] for _ in schedule.rank_of]
    users: list[list[int]] = [[] for _ in schedule.rank_of]
    for maker, user in edges:
        makers[user].append(maker)
        users[maker].append(user)
    # Places in the order, by stage and micro-batch: there may be a million actions.
    count = schedule.micro_batches
    forwards, backwards = [[[-1] * count for _ in schedule.rank_of] for _ in "FB"]
    order: list[Placed] = []

    next_of, went_on = [0] * schedule.ranks, True
    while went_on:
        went_on = False
        for rank, actions in enumerate(schedule.actions):
            for action in itertools.islice(actions, next_of[rank], None):
                kind, stage, micro = action
                if kind == "F":
                    after = [forwards[maker][micro] for maker in makers[stage]]
                elif kind == "W":
                    after = [backwards[stage][micro]]
                else:
                    after = [backwards[user][micro] for user in users[stage]]
                    after.insert(0, forwards[stage][micro])
                if -1 in after:
                    break
                if kind != "W":
                    (forwards if kind == "F" else backwards)[stage][micro] = len(order)
                order.append(Placed(rank, action, tuple(after)))
                next_of[rank] += 1
                went_on = True
    whole = len(order) == sum(map(len, schedule.actions))
    done = set() if whole else {placed.action for placed in order}
    stuck = [
        f"rank {rank} waits in {actions[next_of[rank]]} for "
        + " and ".join(
            str(needed)
            for needed in _needs(actions[next_of[rank]], makers, users, done)
            if needed not in done
        )
        for rank, actions in enumerate(schedule.actions)
        if next_of[rank] < len(actions)
    ]
    if stuck:
        raise ScheduleError(
            f"Schedule {schedule.name!r} never ends: ranks wait for each other: " + "; ".join(stuck)
        )
    return order


def _needs(
    action: Action,
    makers: Sequence[Sequence[int]],
    users: Sequence[Sequence[int]],
    done: Container[tuple[Kind, int, int]],
) -> list[Action]:
    """What must have happened before an action: a stage that uses another's output gives back the
    gradient in a whole backward, or in its first half."""
    kind, stage, micro = action
    if kind == "F":
        return [Action("F", maker, micro) for maker in makers[stage]]
    if kind == "W":
        return [Action("I", stage, micro)]
    own = Action("F", stage, micro)
    halves = (Action("I", user, micro) for user in users[stage])
    return [own, *(half if half in done else Action("B", *half[1:]) for half in halves)]


def _check_complete(schedule: Schedule) -> None:
    def wrong(what: str) -> ScheduleError:
        return ScheduleError(f"Schedule {schedule.name!r} {what}.")

    if schedule.micro_batches < 1 or not schedule.rank_of:
        raise wrong("has no stages or no micro-batches")
    seen: dict[Action, int] = {}
    for rank, actions in enumerate(schedule.actions):
        for action in actions:
            if action.kind not in ("F", "B", "I", "W"):
                raise wrong(f"has an action of unknown kind {action.kind!r} on rank {rank}")
            if not (0 <= action.stage < schedule.stages) or not (
                0 <= action.micro < schedule.micro_batches
            ):
                raise wrong(
                    f"has {action} on rank {rank}, with {schedule.stages} stages and "
                    f"{schedule.micro_batches} micro-batches"
                )
            if schedule.rank_of[action.stage] != rank:
                raise wrong(
                    f"has {action} on rank {rank}, but stage {action.stage} is on rank "
                    f"{schedule.rank_of[action.stage]}"
                )
            if action in seen:
                raise wrong(f"has {action} twice")
            seen[action] = rank
    for stage in range(schedule.stages):
        for micro in range(schedule.micro_batches):
            kinds = "".join(
                kind for kind in ("F", "B", "I", "W") if Action(kind, stage, micro) in seen
            )
            if kinds not in ("FB", "FIW"):
                raise wrong(
                    f"has {kinds or 'nothing'} for micro-batch {micro} on stage {stage}: it needs "
                    "F and B, or F, I and W"
                )
