"""What to expect of each way to train a model, from what its layers take here."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple, NoReturn

from tnt_notebook.errors import ModelError
from tnt_notebook.plan.best import ANY_EXCHANGE, Best, Judged, Way, best, ways
from tnt_notebook.plan.exchange import SIZES_MB, exchange_of
from tnt_notebook.plan.families import FAMILIES
from tnt_notebook.plan.layouts import MeshPlan
from tnt_notebook.plan.least import Filling, fillings_of, of_ranks
from tnt_notebook.plan.network import Link, Network, between_stages, slowest_neighbours
from tnt_notebook.plan.overheads import NONE, Overheads, least_slowed_s
from tnt_notebook.plan.partition import Partition, Wiring, begins_of, partition
from tnt_notebook.plan.prediction import (
    PipelinePlan,
    costs_of_step,
    expected,
    plan_of,
)
from tnt_notebook.plan.profile import Profile, trained_so
from tnt_notebook.plan.schedule import Schedule
from tnt_notebook.plan.search import Loads, best_begins, loads_of
from tnt_notebook.plan.shares import shares_of
from tnt_notebook.plan.stages import Between, beside_s, rank_bytes
from tnt_notebook.plan.traffic import traffic_of


class Outlook:
    """Plans of a model for one size of batch, with the best cut of each.

    Args:
        wiring, names: of its calls of layers.
        profile_of: what they take, by the samples of a micro-batch; asked once for each number.
        divided: the same of ranks that divide the work inside of layers, by samples and mesh; and
            how they do. Raises ModelError where they divide nothing.
        meshes: that there can be.
        batch_size: samples of a batch of all replicas.
        link: over which replicas add up their gradients, and messages go between stages; None:
            the former take no time, the latter what the profile says.
        overheads: what a step takes beside its layers.
        limit_bytes: the memory that a rank may take.
        check: raises ModelError where a cut cannot be made; asked of the best alone.
        said: where a person has said that stages begin, for a schedule; None where it is free.
            Raises ModelError where the schedule has another number of stages.
        exchange: of replicas, as it is typed; None: an allreduce, or ``sharded``, with buckets of
            any size.
    """

    def __init__(
        self,
        wiring: Wiring,
        names: Sequence[str],
        profile_of: Callable[[int], Profile],
        batch_size: int,
        link: Link | Network | None = None,
        overheads: Overheads = NONE,
        limit_bytes: float = float("inf"),
        check: Callable[[Way, Partition], None] = lambda way, cut: None,
        said: Callable[[Schedule], list[int] | None] = lambda schedule: None,
        divided: Callable[[int, str], tuple[Profile, MeshPlan]] = lambda rows, mesh: _nowhere(mesh),
        meshes: Sequence[str] = (),
        exchange: str | None = None,
    ) -> None:
        self._meshes, self._divided = meshes, divided
        self._exchanges = ANY_EXCHANGE if exchange is None else (exchange,)
        self._sizes_mb = SIZES_MB if exchange is None else ()
        self._check, self._said, self._overheads = check, said, overheads
        self._wiring, self._names, self._link = wiring, names, link
        self._batch_size, self._limit = batch_size, limit_bytes
        self._measured = functools.cache(profile_of)
        self._profile = functools.cache(self._profile_of)
        self._loads = functools.cache(self._loads_of)
        self._fillings = functools.cache(self._fillings_of)
        self._schedule = functools.lru_cache(8)(_made)  # the longest are of 200,000 actions

    def best(
        self, ranks: int, count: int = 5, of_rows: Callable[[int], bool] = lambda rows: True
    ) -> Best:
        """The best ways on so many ranks.

        Args:
            count: how many.
            of_rows: which samples of a micro-batch there may be.
        """
        calls = len(self._wiring.calls)
        shares = shares_of(self._overheads.speeds)
        every = ways(ranks, self._batch_size, calls, self._meshes, self._exchanges, shares)
        among = (way for way in every if of_rows(way.rows_of(self._batch_size)))
        bounds = self.least_s, self.least_cut_s
        return best(among, bounds, self.judge, self._limit, count, self._checked)

    def least_s(self, way: Way) -> float:
        """Seconds that a step takes at least, however the model is cut: see :mod:`.least`."""
        kind, family = self._kind(way)._replace(mesh="", owners=1, late=0), FAMILIES[way.schedule]
        profile = self._profile(kind)
        overheads = self._overheads_of(way)
        work_s = overheads.fastest * way.micro_batches * sum(profile.seconds) / way.parts
        alone_s = work_s / way.stages
        if family.stages_per_rank == 1:
            fillings = self._fillings(kind, self._splits(way))
            filled = max(one.least_s(way.stages, way.micro_batches) for one in fillings)
            alone_s = max(alone_s, overheads.fastest * filled / way.parts)
        # A forward and a backward of each micro-batch, of every stage.
        actions = 2 * way.micro_batches * family.stages_per_rank if way.in_parts else 0
        actions_s = actions * overheads.action_s
        least = least_slowed_s(
            overheads, alone_s, work_s + way.stages * actions_s, way.stages, way.alike, actions_s
        )
        update = overheads.update_s(*profile.trained(range(len(self._names))))
        return least + overheads.step_s + update / (way.stages * way.parts * way.owners)

    def least_cut_s(self, way: Way) -> float:
        """Seconds that a step takes at least with the best cut, in any order of work; much sooner
        known than the step. Raises ModelError where no cut fits."""
        profile, _, begins = self._cut(way)
        schedule, _ = _outline(way.schedule, way.stages, way.micro_batches)
        cut = partition(self._wiring, begins)
        overheads = self._overheads_of(way)
        costs = costs_of_step(profile, schedule, cut, overheads, self._between(way, schedule))
        splits = self._splits(way)
        of_each = of_ranks(costs, schedule.rank_of, cut.pairs(), way.micro_batches, splits)
        work_s = overheads.fastest * way.micro_batches * sum(profile.seconds)
        least = max(
            least_slowed_s(overheads, layers, work_s, way.stages, way.alike, fixed)
            for layers, fixed in of_each
        )
        return least + beside_s(profile, schedule, cut, overheads)

    def judge(self, way: Way) -> Judged:
        """How long a step takes, and what it needs. Raises ModelError where no cut fits."""
        profile, _, begins = self._cut(way)
        schedule = self._schedule(way.schedule, way.stages, way.micro_batches)
        cut = partition(self._wiring, begins)
        between, overheads = self._between(way, schedule), self._overheads_of(way)
        _, timeline = expected(profile, schedule, cut, way.alike, overheads, between)
        longer, _ = exchange_of(
            profile, schedule, cut, timeline, way.replicas, way.alike, self._link, way.exchange,
            self._sizes_mb,
        )  # fmt: skip
        needs = max(rank_bytes(self._wiring, profile, schedule, begins))
        beside = beside_s(profile, schedule, cut, overheads)
        return Judged(timeline.seconds + longer + beside, needs)

    def plan(self, way: Way) -> PipelinePlan:
        """What to expect of a way. Raises ModelError where no cut fits into memory."""
        profile, layouts, begins = self._cut(way)
        schedule = self._schedule(way.schedule, way.stages, way.micro_batches)
        return plan_of(
            self._wiring, profile, self._names, schedule, begins, self._batch_size, way.replicas,
            self._overheads_of(way), self._between(way, schedule), layouts, way.exchange,
            way.shares, self._link, self._sizes_mb,
        )  # fmt: skip

    def _checked(self, way: Way) -> None:
        _, _, begins = self._cut(way)
        by_name = [self._names[begin] for begin in begins]
        if self._overheads_of(way).slowness and begins_of(self._names, by_name) != begins:
            raise ModelError(
                f"Stages for ranks of different speed would begin with {', '.join(by_name)}, and "
                "a layer that is called several times begins none."
            )
        self._check(way, partition(self._wiring, begins))

    def _cut(self, way: Way) -> tuple[Profile, MeshPlan | None, list[int]]:
        schedule, held = _outline(way.schedule, way.stages, way.micro_batches)
        begins = self._said(schedule) if schedule.stages > 1 else []
        if begins is None:
            per_rank = schedule.stages // schedule.ranks
            loads = self._loads(self._kind(way), self._slowest(way))
            slow = [*map(self._overheads_of(way).slowness_of, schedule.rank_of)]
            begins = best_begins(loads, schedule.stages, held, self._limit, per_rank, slow)
        layouts = self._divided(way.rows_of(self._batch_size), way.mesh)[1] if way.mesh else None
        return self._profile(self._kind(way)), layouts, begins

    def _overheads_of(self, way: Way) -> Overheads:
        are_known = not way.mesh and way.alike * way.stages == len(self._overheads.speeds)
        return (
            self._overheads.of_pipelines(way.stages, way.shares) if are_known else self._overheads
        )

    def _splits(self, way: Way) -> bool:
        """Whether a backward is done in two halves."""
        return self._schedule(way.schedule, 2, 1).splits_backward()

    def _between(self, way: Way, schedule: Schedule) -> Between | None:
        """What messages go over from stage to stage; None: as the profile says."""
        network, rank_of = self._link, schedule.rank_of
        if not isinstance(network, Network):
            return None if network is None else lambda maker, user: network
        return lambda maker, user: between_stages(
            network, way.stages, way.replicas, rank_of[maker], rank_of[user], way.parts
        )

    def _slowest(self, way: Way) -> Link | None:
        """The slowest of them: where the cut is looked for, stages are not known yet."""
        if not isinstance(self._link, Network) or way.stages == 1:
            return self._link if isinstance(self._link, Link) else None
        return slowest_neighbours(self._link, way.stages, way.replicas, way.parts)

    def _kind(self, way: Way) -> _Kind:
        rows, adds_up = way.rows_of(self._batch_size), way.micro_batches > 1
        late = traffic_of(way.exchange).late
        return _Kind(rows, adds_up, way.recompute, way.mesh, way.owners, late)

    def _profile_of(self, kind: _Kind) -> Profile:
        rows, mesh = kind.rows, kind.mesh
        measured = self._divided(rows, mesh)[0] if mesh else self._measured(rows)
        return trained_so(measured, kind.adds_up, kind.recompute, kind.owners, kind.late)

    def _fillings_of(self, kind: _Kind, splits: bool) -> list[Filling]:
        return fillings_of(self._wiring, self._profile(kind), splits)

    def _loads_of(self, kind: _Kind, link: Link | None) -> Loads:
        profile = self._profile(kind)
        if link is not None:
            there_and_back = {v: 2 * link.seconds(b) for v, b in profile.value_bytes.items()}
            profile = replace(profile, transfer=there_and_back)
        return loads_of(self._wiring, profile)


class _Kind(NamedTuple):
    """What the profile of a way depends on: samples of the largest micro-batch, whether gradients
    of several are added up, whether activations are recomputed, the mesh, how many ranks share out
    the optimizer's state, and by how many steps gradients are late."""

    rows: int
    adds_up: bool
    recompute: bool
    mesh: str
    owners: int
    late: int


def _nowhere(mesh: str) -> NoReturn:
    raise ModelError(f"No layer can be divided on the mesh {mesh}.")


def _made(name: str, ranks: int, micro_batches: int) -> Schedule:
    """Not checked, which takes as long as to simulate it: tests prove those of the families."""
    family = FAMILIES[name]
    return family.make(ranks, micro_batches, family.stages_per_rank)


@functools.cache
def _outline(name: str, ranks: int, micro_batches: int) -> tuple[Schedule, list[int]]:
    """A schedule without its actions, which take long to make; and how many micro-batches each of
    its stages has under way at most."""
    made = _made(name, ranks, micro_batches)
    return replace(made, actions=((),) * ranks), made.held_by_stage()
