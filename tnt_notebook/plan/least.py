"""How long a step of a pipeline takes at least, however its model is cut, and with a cut: what a
search need not look at follows from it.

A rank cannot begin before the first micro-batch has come through all stages before its own, and the
step does not end before the last one is back there. With ``m`` micro-batches, ``w`` the seconds of
one on the rank and ``p`` those on the stages before it, a step of ``x`` seconds has

    p + m w <= x        so  w <= (x - p) / m   of the first rank, the second, ...

All of them together do ``t``: ``t <= x (1 - (1 - 1/m)^stages)``. Where only a part ``a`` of what a
stage does keeps others from their work, as weight gradients do not, ``p`` is ``a`` times as long.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from tnt_notebook.plan.partition import Wiring
from tnt_notebook.plan.profile import Profile
from tnt_notebook.plan.schedule import Edges
from tnt_notebook.plan.simulate import Costs


class Filling(NamedTuple):
    """What any cut of a model has in common, for one micro-batch.

    Attributes:
        own: seconds of all calls, by what ranks do themselves.
        part: of that, at least, for which those behind have to wait.
        beside: seconds at most of the calls before one that it need not wait for.
    """

    own: float
    part: float
    beside: float

    def least_s(self, stages: int, micro_batches: int) -> float:
        """Seconds at least of a step in which each rank has one stage, in order."""
        if not self.part:
            return 0.0
        filled = self.part * self.own / (1 - (1 - self.part / micro_batches) ** stages)
        return filled - self.beside


def fillings_of(wiring: Wiring, profile: Profile, splits: bool) -> list[Filling]:
    """Each of them bounds a step.

    Args:
        splits: whether a backward is done in two halves.
    """
    whole = profile.seconds
    if not splits:
        return [_filling(wiring, whole, whole)]
    there_and_back = [sum(both) for both in zip(profile.forward, profile.inputs, strict=True)]
    # Weight gradients are left when the last input gradient has gone; but not when the first
    # micro-batch comes.
    return [
        _filling(wiring, there_and_back, there_and_back),
        _filling(wiring, whole, profile.forward),
    ]


def of_ranks(
    costs: Costs, rank_of: Sequence[int], edges: Edges, micro_batches: int, splits: bool
) -> list[tuple[float, float]]:
    """Seconds at least of a step with this cut, in any order of work: by each rank. It waits for
    the first micro-batch, does its work, and its last gradient has to come back to the first stage.

    Args:
        rank_of: of each stage.
        splits: whether a backward is done in two halves.

    Returns:
        Of each rank, twice if a backward is done in two halves: seconds of layers, and of actions
        and messages.
    """
    makers: list[list[int]] = [[] for _ in rank_of]
    for maker, user in edges:
        makers[user].append(maker)
    back = [i + (0 if splits else w) for i, w in zip(costs.inputs, costs.weights, strict=True)]
    there, home = (
        _before(costs, rank_of, makers, costs.forward),
        _before(costs, rank_of, makers, back),
    )
    least = []
    for rank in range(max(rank_of) + 1):
        own = [stage for stage, owner in enumerate(rank_of) if owner == rank]
        ahead = [min(part) for part in zip(*(there[stage] for stage in own), strict=True)]
        behind = [min(part) for part in zip(*(home[stage] for stage in own), strict=True)]
        forward_and_back = micro_batches * sum(costs.forward[s] + back[s] for s in own)
        actions = micro_batches * len(own) * costs.action
        least.append((ahead[0] + forward_and_back + behind[0], ahead[1] + 2 * actions + behind[1]))
        if splits:  # weight gradients keep nobody waiting
            rest = micro_batches * sum(costs.weights[stage] for stage in own)
            least.append((ahead[0] + forward_and_back + rest, ahead[1] + 3 * actions))
    return least


def _before(
    costs: Costs, rank_of: Sequence[int], makers: Sequence[Sequence[int]], takes: Sequence[float]
) -> list[tuple[float, float]]:
    """Of each stage, what has to be done on the way from the first stages to it, or back: seconds
    of layers, and beside them, along the path that takes longest.

    Args:
        takes: seconds of each stage.
    """
    paths: list[tuple[float, float]] = []
    for stage, before in enumerate(makers):
        ways = [(0.0, 0.0)]
        for maker in before:
            layers, fixed = paths[maker]
            apart = rank_of[maker] != rank_of[stage]
            sent = costs.transfer.get((maker, stage), 0.0) if apart else 0.0
            ways.append((layers + takes[maker], fixed + costs.action + sent))
        paths.append(max(ways, key=sum))
    return paths


def _filling(wiring: Wiring, own: Sequence[float], ahead: Sequence[float]) -> Filling:
    """By the seconds of each call that a rank does itself, and that it waits for if a stage before
    does them."""
    part = min((a / o for a, o in zip(ahead, own, strict=True) if o), default=0.0)
    return Filling(sum(own), part, _beside(wiring, ahead))


def _beside(wiring: Wiring, seconds: Sequence[float]) -> float:
    """The most of the calls before one that it need not wait for; 0 where each takes what the one
    before gives."""
    made_by: dict[int, int] = {}
    before, waits, most = 0.0, list[float](), 0.0
    for number, (takes, gives) in enumerate(wiring.calls):
        makers = {made_by[value] for value in takes if value in made_by}
        waits.append(max((waits[maker] + seconds[maker] for maker in makers), default=0.0))
        most = max(most, before - waits[-1])
        made_by.update(dict.fromkeys(gives, number))
        before += seconds[number]
    return most
