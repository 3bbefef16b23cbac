"""What the stages of a model take of the ranks that have them: time, memory, messages."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import astuple, dataclass, fields
from itertools import pairwise

from tnt_notebook.plan.network import Link
from tnt_notebook.plan.overheads import NONE, Overheads
from tnt_notebook.plan.partition import Partition, Wiring
from tnt_notebook.plan.profile import Profile, load_of
from tnt_notebook.plan.schedule import Schedule
from tnt_notebook.plan.simulate import Costs

#: What messages go over from one stage to another.
Between = Callable[[int, int], Link]


@dataclass(frozen=True)
class Memory:
    """Bytes that a stage needs, by what for.

    Attributes:
        working: what is just being done needs beside the rest: gradients between layers, those of
            one micro-batch before they are added up, activations that are computed again, or what
            the optimizer makes on the way.
    """

    weights: int
    gradients: int
    optimizer: int
    activations: int
    working: int

    @property
    def total(self) -> int:
        """All of them together."""
        return sum(astuple(self))


#: What memory is for.
PARTS = tuple(part.name for part in fields(Memory))


@dataclass(frozen=True)
class StagePlan:
    """A stage, and what is expected of it.

    Attributes:
        first, last, layers: names of the first and the last layer, and how many there are.
        parameters: numbers in its weights.
        held: micro-batches under way at most.
        forward_s, backward_s: of a micro-batch.
        sent_bytes: to later stages on other ranks, of a micro-batch; about as many come back.
    """

    number: int
    rank: int
    first: str
    last: str
    layers: int
    parameters: int
    memory: Memory
    held: int
    forward_s: float
    backward_s: float
    sent_bytes: int


def rank_bytes(
    wiring: Wiring, profile: Profile, schedule: Schedule, begins: Sequence[int]
) -> list[int]:
    """The most memory that each rank needs in a step, in bytes."""
    bounds = [*pairwise([0, *begins, len(wiring.calls)])]
    loads = [load_of(wiring, profile, begin, end) for begin, end in bounds]
    needs = []
    for rank in range(schedule.ranks):
        most = schedule.peak(rank, [load.held_bytes for load in loads])
        own = [loads[stage] for stage in schedule.stages_of(rank)]
        weights = sum(load.state_bytes + load.gradient_bytes for load in own)
        calls = (call for stage in schedule.stages_of(rank) for call in range(*bounds[stage]))
        weights += profile.uneven_bytes(calls)
        working = max(load.working_bytes for load in own)
        needs.append(weights + max(round(most) + working, max(load.update_bytes for load in own)))
    return needs


def costs_of(
    profile: Profile,
    cut: Partition,
    overheads: Overheads = NONE,
    between: Between | None = None,
    rank_of: Sequence[int] = (),
) -> Costs:
    """What they take of a micro-batch, on ranks that work alone.

    Args:
        rank_of: of each stage; empty: all are as fast as the one that was measured.
        between: what messages go over; None: they take what the profile says.
    """

    def by_stage(seconds: Sequence[float]) -> list[float]:
        times = map(overheads.slowness_of, rank_of or [0] * len(cut.stages))
        return [
            slow * sum(seconds[stage.begin : stage.end])
            for slow, stage in zip(times, cut.stages, strict=True)
        ]

    transfer: dict[tuple[int, int], float] = defaultdict(float)
    for value, maker, user in cut.edges:
        sent = profile.transfer.get(value, 0.0) / 2  # there; the rest is back
        if between is not None:
            sent = between(maker, user).seconds(profile.value_bytes.get(value, 0))
        transfer[maker, user] += overheads.message_s + sent
    inputs, weights = by_stage(profile.inputs), by_stage(profile.weights)
    for number, stage in enumerate(cut.stages):
        if not stage.takes:  # no other stage waits for its gradients: all of them are W's
            inputs[number], weights[number] = 0.0, inputs[number] + weights[number]
    return Costs(by_stage(profile.forward), inputs, weights, transfer, overheads.action_s)


def beside_s(profile: Profile, schedule: Schedule, cut: Partition, overheads: Overheads) -> float:
    """Seconds of a step beside its actions: what any step takes, and the optimizer of the rank that
    trains most."""
    most = 0.0
    for rank in range(schedule.ranks):
        own = [cut.stages[stage] for stage in schedule.stages_of(rank)]
        calls = [call for stage in own for call in range(stage.begin, stage.end)]
        most = max(most, overheads.update_s(*profile.trained(calls)))
    return overheads.step_s + most


def stages_of(
    wiring: Wiring,
    profile: Profile,
    names: Sequence[str],
    schedule: Schedule,
    cut: Partition,
    costs: Costs,
) -> list[StagePlan]:
    """What is expected of each.

    Args:
        names: of the layer of each call.
        costs: as :func:`costs_of` gives them.
    """
    held = schedule.held_by_stage()
    result = []
    for number, stage in enumerate(cut.stages):
        load = load_of(wiring, profile, stage.begin, stage.end)
        used = {v for uses in profile.uses[stage.begin : stage.end] for v in uses}
        variables = [profile.variables[v] for v in used]
        activations = held[number] * load.held_bytes
        away = {
            edge.value
            for edge in cut.edges
            if edge.maker == number and schedule.rank_of[edge.user] != schedule.rank_of[number]
        }
        result.append(
            StagePlan(
                number,
                schedule.rank_of[number],
                names[stage.begin],
                names[stage.end - 1],
                stage.end - stage.begin,
                sum(v.elements for v in variables),
                Memory(
                    sum(v.bytes for v in variables),
                    load.gradient_bytes,
                    load.state_bytes - sum(v.bytes for v in variables),
                    activations,
                    max(load.working_bytes, load.update_bytes - activations),
                ),
                held[number],
                costs.forward[number],
                costs.inputs[number] + costs.weights[number],
                sum(profile.value_bytes.get(v, 0) for v in away),
            )
        )
    return result
