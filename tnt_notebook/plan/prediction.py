"""What to expect of a pipeline before it runs: time, idle time and memory, from what layers take.

    profile of the calls + cut  ->  costs of the stages  ->  simulated step  ->  PipelinePlan

Plain numbers in and out, so that the ranks can measure and the notebook can draw. Messages take
what the profile says of them; what a step takes beside its layers is in :mod:`.overheads`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from statistics import fmean
from typing import Any

from tnt_notebook.plan import layouts
from tnt_notebook.plan.exchange import exchange_of
from tnt_notebook.plan.families import bubble_by_formula
from tnt_notebook.plan.layouts import MeshPlan
from tnt_notebook.plan.network import Link, Network
from tnt_notebook.plan.overheads import NONE, Overheads, slowed
from tnt_notebook.plan.partition import Partition, Wiring, partition
from tnt_notebook.plan.profile import Profile
from tnt_notebook.plan.schedule import Action, Schedule
from tnt_notebook.plan.shares import largest
from tnt_notebook.plan.simulate import Costs, Span, Timeline, even_costs, simulate
from tnt_notebook.plan.stages import (
    Between,
    Memory,
    StagePlan,
    beside_s,
    costs_of,
    rank_bytes,
    stages_of,
)


@dataclass(frozen=True)
class Losses:
    """By how many seconds a step would be shorter ...

    Attributes:
        imbalance: ... if all stages took the same time.
        messages: ... if nothing had to be sent.
        bubble: ... if moreover no rank had to wait for the first micro-batch, or after the last.
        actions: ... if beginning an action took no time.
    """

    imbalance: float
    messages: float
    bubble: float
    actions: float = 0.0


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
        one_rank_s: of a step on one rank: in the fastest way there of those whose layers have been
            timed, as if it had the memory.
        spans: when each action begins and ends.
        exchange_s: how much longer a step is since replicas add up their gradients, which goes on
            while the last micro-batch goes back.
        input: what is read for it; None: not known.
        beside_s: of a step, what is done before and after all of that: Keras's loop, votes,
            metrics, and the optimizer.
        layouts: how the work of stages is divided, layer by layer, for a micro-batch on each
            replica; None: one rank does it.
        overheads: that were reckoned with.
        exchange, shares: the options of the fit; empty: an allreduce as usual, and equal shares.
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
    one_rank_s: float
    losses: Losses
    spans: tuple[Span, ...] = field(repr=False)
    exchange_s: float = 0.0
    beside_s: float = 0.0
    input: InputPlan | None = None
    layouts: MeshPlan | None = None
    overheads: Overheads = NONE
    exchange: str = ""
    shares: tuple[int, ...] = ()

    @property
    def parts(self) -> int:
        """How many ranks divide the work inside of layers."""
        return self.layouts.parts if self.layouts else 1

    @property
    def alike(self) -> int:
        """How many ranks work on the same stage at the same time."""
        return self.replicas * self.parts

    @property
    def timeline(self) -> Timeline:
        """What a step will look like."""
        return Timeline(self.schedule, self.ranks, self.micro_batches, self.spans)

    @property
    def compute_s(self) -> float:
        """Seconds of a step that has its input."""
        return self.timeline.seconds + self.exchange_s + self.beside_s

    @property
    def input_s(self) -> float:
        """Seconds until the input of a step has come; 0 where that is not known."""
        return self.batch_size / self.input.samples_per_s if self.input else 0.0

    @property
    def step_s(self) -> float:
        """Seconds of a step."""
        return max(self.compute_s, self.input_s)

    @property
    def samples_per_s(self) -> float:
        """Of all replicas while they train: a batch by a step. What tracing, the first step of an
        epoch, validation and callbacks take is not in it."""
        return self.batch_size / self.step_s

    @property
    def speedup(self) -> float:
        """How many times as fast as one rank, in the fastest way there."""
        return self.one_rank_s / self.step_s

    @property
    def bubble(self) -> float:
        """The part of a step that ranks are idle, 0 to 1."""
        return 1 - (1 - self.timeline.bubble) * self.timeline.seconds / self.step_s


def plan_of(
    wiring: Wiring,
    profile: Profile,
    names: Sequence[str],
    schedule: Schedule,
    begins: Sequence[int],
    batch_size: int,
    replicas: int = 1,
    overheads: Overheads = NONE,
    between: Between | None = None,
    layouts: MeshPlan | None = None,
    exchange: str = "",
    shares: tuple[int, ...] = (),
    link: Link | Network | None = None,
    sizes_mb: Sequence[float] = (),
) -> PipelinePlan:
    """Predicts a step, with stages that begin with these calls, the first aside. Raises ModelError
    where one would be empty.

    Args:
        profile: of the largest micro-batch; with recomputation as
            :func:`~tnt_notebook.plan.profile.trained_so` gives it.
        names: of the layer of each call.
        batch_size: samples of a batch of all replicas.
        overheads: what a step takes beside its layers.
        between: what messages go over from stage to stage; None: as the profile says.
        layouts: how ranks divide the work of stages that the profile is of.
        link: over which ranks add up their gradients; None: that takes no time.
        sizes_mb: of buckets, see :func:`~tnt_notebook.plan.exchange.exchange_of`.

    Returns:
        With ``one_rank_s`` of a rank that does the same micro-batches.
    """
    cut = partition(wiring, begins)
    alike = replicas * (layouts.parts if layouts else 1)
    costs, timeline = expected(profile, schedule, cut, alike, overheads, between)
    edges = cut.pairs()
    mean = [fmean(seconds) for seconds in (costs.forward, costs.inputs, costs.weights)]
    evened = replace(even_costs(schedule.stages, *mean), action=costs.action)
    per_rank = schedule.stages // schedule.ranks
    step, work = timeline.seconds, timeline.work
    free = simulate(schedule, replace(costs, transfer={}), edges).seconds
    even = simulate(schedule, replace(evened, transfer=costs.transfer), edges).seconds
    ideal = simulate(schedule, evened, edges).seconds
    actions = costs.action * len(timeline.spans) / schedule.ranks
    beside = beside_s(profile, schedule, cut, overheads)
    summed = exchange_of(
        profile, schedule, cut, timeline, replicas, alike, link, exchange, sizes_mb
    )
    trained = replace(profile, owners=1).trained(range(len(wiring.calls)))
    whole = overheads.step_s + overheads.update_s(*trained)
    layers = layouts.alone_s / layouts.replicas if layouts else sum(profile.seconds)
    most = largest(batch_size, replicas, shares)
    alone = batch_size / most * schedule.micro_batches * layers + whole
    return PipelinePlan(
        schedule.name, schedule.ranks, replicas, batch_size, schedule.micro_batches,
        -(-most // schedule.micro_batches), profile.recompute,
        tuple(stages_of(wiring, profile, names, schedule, cut, costs)),
        tuple(rank_bytes(wiring, profile, schedule, begins)),
        bubble_by_formula(schedule, *(per_rank * seconds for seconds in mean)),
        alone,
        Losses(
            max(0.0, step - even), max(0.0, step - free), ideal - work / schedule.ranks, actions
        ),
        timeline.spans, summed.seconds, beside, None, layouts, overheads,
        summed.exchange, shares,
    )  # fmt: skip


def expected(
    profile: Profile,
    schedule: Schedule,
    cut: Partition,
    alike: int,
    overheads: Overheads,
    between: Between | None = None,
) -> tuple[Costs, Timeline]:
    """What stages take of a micro-batch, and the timeline of a step: of ranks that make each other
    slower as far as they work at the same time.

    Args:
        alike: ranks that work on the same stage at the same time.
    """
    costs = costs_of_step(profile, schedule, cut, overheads, between)
    alone = simulate(schedule, costs, cut.pairs())
    times = slowed(overheads, alone, alike)
    if times == 1.0:
        return costs, alone
    costs = costs.slowed(times)
    return costs, simulate(schedule, costs, cut.pairs())


def costs_of_step(
    profile: Profile,
    schedule: Schedule,
    cut: Partition,
    overheads: Overheads,
    between: Between | None = None,
) -> Costs:
    """What stages take of a micro-batch, of ranks that work alone. A whole copy that takes its
    share at once is trained without a pipeline, so it begins no actions."""
    whole = schedule.ranks == schedule.micro_batches == 1 and not profile.recompute
    own = replace(NONE, slowness=overheads.slowness) if whole else overheads
    return costs_of(profile, cut, own, between, schedule.rank_of)


def with_input(plan: PipelinePlan, read: InputPlan) -> PipelinePlan:
    """The same plan, of steps that read this."""
    return replace(plan, input=read)


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
        "overheads": Overheads(**data["overheads"]),
        "shares": tuple(data["shares"]),
    }
    return PipelinePlan(**{**data, **parsed})
