"""What to expect of a pipeline before it runs: time, idle time and memory, from what layers take.

    profile of the calls + cut  ->  costs of the stages  ->  simulated step  ->  PipelinePlan

Plain numbers in and out, so that the ranks can measure and the notebook can draw. Messages take
what the profile assumes of them; the exchange of gradients between replicas, the optimizer, and
what TensorFlow takes between actions are not in the prediction.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import pairwise
from statistics import fmean
from typing import Any

from tnt_notebook.plan import layouts
from tnt_notebook.plan.families import bubble_by_formula
from tnt_notebook.plan.layouts import MeshPlan
from tnt_notebook.plan.partition import Partition, Wiring, partition
from tnt_notebook.plan.profile import Profile, load_of
from tnt_notebook.plan.schedule import Action, Schedule
from tnt_notebook.plan.simulate import Costs, Span, Timeline, even_costs, simulate


@dataclass(frozen=True)
class Memory:
    """Bytes that a stage needs, by what for."""

    weights: int
    gradients: int
    optimizer: int
    activations: int

    @property
    def total(self) -> int:
        """All of them together."""
        return self.weights + self.gradients + self.optimizer + self.activations


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


@dataclass(frozen=True)
class Losses:
    """By how many seconds a step would be shorter ...

    Attributes:
        imbalance: ... if all stages took the same time.
        messages: ... if nothing had to be sent.
        bubble: ... if moreover no rank had to wait for the first micro-batch, or after the last.
    """

    imbalance: float
    messages: float
    bubble: float


@dataclass(frozen=True)
class InputPlan:
    """What is read for a step.

    Attributes:
        dataset: its name on the ranks.
        reading: why every rank does the work of input for all; empty: each does its own part.
        samples_per_s: that it delivers to all ranks together, as measured.
    """

    dataset: str
    reading: str
    samples_per_s: float


@dataclass(frozen=True)
class PipelinePlan:
    """What to expect of a step. Input, where it is known, is read while ranks compute: a step takes
    as long as the longer of the two.

    Attributes:
        schedule: its name.
        ranks, replicas: of a pipeline, and pipelines that share the data.
        batch_size, micro_batches, rows: samples of a batch, parts of a replica's share of it, and
            samples of the largest part.
        rank_bytes: what each rank of a pipeline needs.
        formula_bubble: by the formula of the schedule, with equal stages and free messages; None
            for a schedule of one's own.
        samples_per_s: of all replicas while they train: a batch by a step. What tracing, the first
            step of an epoch, validation and callbacks take is not in it.
        speedup: how many times as fast as one rank that does the same micro-batches.
        spans: when each action begins and ends.
        input: what is read for it; None: not known.
        layouts: how the work of stages is divided, layer by layer, for a micro-batch on each
            replica; None: one rank does it.
    """

    schedule: str
    ranks: int
    replicas: int
    batch_size: int
    micro_batches: int
    rows: int
    recompute: bool
    stages: tuple[StagePlan, ...]
    rank_bytes: tuple[int, ...]
    formula_bubble: float | None
    samples_per_s: float
    speedup: float
    losses: Losses
    spans: tuple[Span, ...] = field(repr=False)
    input: InputPlan | None = None
    layouts: MeshPlan | None = None

    @property
    def timeline(self) -> Timeline:
        """What a step will look like."""
        return Timeline(self.schedule, self.ranks, self.micro_batches, self.spans)

    @property
    def compute_s(self) -> float:
        """Seconds of a step that has its input."""
        return self.timeline.seconds

    @property
    def input_s(self) -> float:
        """Seconds until the input of a step has come; 0 where that is not known."""
        return self.batch_size / self.input.samples_per_s if self.input else 0.0

    @property
    def step_s(self) -> float:
        """Seconds of a step."""
        return max(self.compute_s, self.input_s)

    @property
    def bubble(self) -> float:
        """The part of a step that ranks are idle, 0 to 1."""
        return 1 - (1 - self.timeline.bubble) * self.compute_s / self.step_s


def plan_of(
    wiring: Wiring,
    profile: Profile,
    names: Sequence[str],
    schedule: Schedule,
    begins: Sequence[int],
    batch_size: int,
    replicas: int = 1,
) -> PipelinePlan:
    """Predicts a step, with stages that begin with these calls, the first aside. Raises ModelError
    where one would be empty.

    Args:
        profile: of the largest micro-batch; with recomputation as
            :func:`~tnt_notebook.plan.profile.recomputing` gives it.
        names: of the layer of each call.
        batch_size: samples of a batch of all replicas.
    """
    cut = partition(wiring, begins)
    costs = _costs(profile, cut)
    edges = cut.pairs()
    mean = [fmean(seconds) for seconds in (costs.forward, costs.inputs, costs.weights)]
    evened, per_rank = even_costs(schedule.stages, *mean), schedule.stages // schedule.ranks
    timeline = simulate(schedule, costs, edges)
    step, work = timeline.seconds, timeline.work
    free = simulate(schedule, replace(costs, transfer={}), edges).seconds
    even = simulate(schedule, replace(evened, transfer=costs.transfer), edges).seconds
    ideal = simulate(schedule, evened, edges).seconds
    return PipelinePlan(
        schedule.name, schedule.ranks, replicas, batch_size, schedule.micro_batches,
        -(-batch_size // (replicas * schedule.micro_batches)), profile.recompute,
        tuple(_stages(wiring, profile, names, schedule, cut, costs)),
        tuple(rank_bytes(wiring, profile, schedule, begins)),
        bubble_by_formula(schedule, *(per_rank * seconds for seconds in mean)), batch_size / step,
        replicas * work / step,
        Losses(max(0.0, step - even), max(0.0, step - free), ideal - work / schedule.ranks),
        timeline.spans,
    )  # fmt: skip


def on_mesh(plan: PipelinePlan, divided: MeshPlan) -> PipelinePlan:
    """The same plan, made with a profile of ranks that divide the work of stages so."""
    alone_s = plan.micro_batches * divided.alone_s
    return replace(plan, layouts=divided, speedup=alone_s / plan.step_s)


def with_input(plan: PipelinePlan, read: InputPlan) -> PipelinePlan:
    """The same plan, of steps that read this."""
    fed = replace(plan, input=read)
    slower = plan.step_s / fed.step_s
    return replace(fed, samples_per_s=plan.samples_per_s * slower, speedup=plan.speedup * slower)


def rank_bytes(
    wiring: Wiring, profile: Profile, schedule: Schedule, begins: Sequence[int]
) -> list[int]:
    """The most memory that each rank needs in a step, in bytes."""
    bounds = pairwise([0, *begins, len(wiring.calls)])
    loads = [load_of(wiring, profile, begin, end) for begin, end in bounds]
    needs = []
    for rank in range(schedule.ranks):
        most = schedule.peak(rank, [load.held_bytes for load in loads])
        own = [loads[stage] for stage in schedule.stages_of(rank)]
        weights = sum(load.state_bytes + load.gradient_bytes for load in own)
        once = max(load.once_bytes for load in own)
        needs.append(weights + round(most) + once)
    return needs


def as_json(plan: PipelinePlan) -> dict[str, Any]:
    """A plan as JSON values."""
    return asdict(plan)


def from_json(data: dict[str, Any]) -> PipelinePlan:
    """The plan that :func:`as_json` made data of."""
    stages = [StagePlan(**{**s, "memory": Memory(**s["memory"])}) for s in data["stages"]]
    read, divided = data.get("input"), data.get("layouts")
    spans = [Span(rank, Action(*action), *times) for rank, action, *times in data["spans"]]
    parsed = {
        "stages": tuple(stages),
        "spans": tuple(spans),
        "losses": Losses(**data["losses"]),
        "rank_bytes": tuple(data["rank_bytes"]),
        "input": InputPlan(**read) if read else None,
        "layouts": layouts.from_json(divided) if divided else None,
    }
    return PipelinePlan(**{**data, **parsed})


def _costs(profile: Profile, cut: Partition) -> Costs:
    def by_stage(seconds: Sequence[float]) -> list[float]:
        return [sum(seconds[stage.begin : stage.end]) for stage in cut.stages]

    transfer: dict[tuple[int, int], float] = defaultdict(float)
    for value, maker, user in cut.edges:
        transfer[maker, user] += profile.transfer.get(value, 0.0) / 2  # there; the rest is back
    inputs, weights = by_stage(profile.inputs), by_stage(profile.weights)
    for number, stage in enumerate(cut.stages):
        if not stage.takes:  # no other stage waits for its gradients: all of them are W's
            inputs[number], weights[number] = 0.0, inputs[number] + weights[number]
    return Costs(by_stage(profile.forward), inputs, weights, transfer)


def _stages(
    wiring: Wiring,
    profile: Profile,
    names: Sequence[str],
    schedule: Schedule,
    cut: Partition,
    costs: Costs,
) -> list[StagePlan]:
    held = schedule.held_by_stage()
    result = []
    for number, stage in enumerate(cut.stages):
        load = load_of(wiring, profile, stage.begin, stage.end)
        used = {v for uses in profile.uses[stage.begin : stage.end] for v in uses}
        variables = [profile.variables[v] for v in used]
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
                    round(profile.slots * load.gradient_bytes),
                    held[number] * load.held_bytes + load.once_bytes,
                ),
                held[number],
                costs.forward[number],
                costs.inputs[number] + costs.weights[number],
                sum(profile.value_bytes.get(v, 0) for v in away),
            )
        )
    return result
