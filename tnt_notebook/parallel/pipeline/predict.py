"""Plans pipelines for a Keras model, from measurements on this rank alone."""

from __future__ import annotations

import functools
from dataclasses import replace
from typing import Any

import keras

from tnt_notebook.errors import ModelError
from tnt_notebook.keras.step_functions import own_step
from tnt_notebook.parallel.layer_graph.graph import Graph, wiring_of
from tnt_notebook.parallel.layer_graph.profile import (
    Report,
    is_measured,
    measured_of,
    profile_from,
)
from tnt_notebook.parallel.layer_graph.survey import surveyed
from tnt_notebook.parallel.layers.foresight import foreseen, meshes_of
from tnt_notebook.parallel.layers.layout_map import Wanted
from tnt_notebook.parallel.layers.program import Program
from tnt_notebook.parallel.pipeline.cut import begins_said, best_cut
from tnt_notebook.parallel.pipeline.refusals import check_model
from tnt_notebook.parallel.pipeline.stage import stage_models
from tnt_notebook.plan.best import Best, Way, ways
from tnt_notebook.plan.by_ranks import numbers_of_ranks, row_of
from tnt_notebook.plan.families import make
from tnt_notebook.plan.layouts import MeshPlan
from tnt_notebook.plan.mesh import DATA, Layouts, Mesh
from tnt_notebook.plan.network import ASSUMED, Link, Network, message
from tnt_notebook.plan.options import Pipeline
from tnt_notebook.plan.outlook import Outlook
from tnt_notebook.plan.overheads import NONE, Overheads
from tnt_notebook.plan.partition import Partition, partition
from tnt_notebook.plan.prediction import PipelinePlan, plan_of
from tnt_notebook.plan.profile import Profile, divided, trained_so
from tnt_notebook.plan.sharing import is_sharded
from tnt_notebook.plan.traffic import traffic_of


class Planner:
    """Plans several pipelines for a model that is measured once: for batches of all replicas, as if
    there were ranks enough.

    Args:
        mesh: along whose axes the work of stages is divided, of any number of ranks.
        layouts: those that some layers are to have there.
        link: what ranks exchange with, and among how many that was measured.
        overheads: what a step takes beside its layers.
        exchange: of replicas, as it is typed; None: an allreduce, or one that changes nothing of
            what is trained.

    Raises:
        ModelError: it cannot be trained in a pipeline.
    """

    def __init__(
        self,
        model: keras.Model,
        batch_size: int,
        ranks: int,
        report: Report | None = None,
        mesh: Mesh | None = None,
        layouts: Layouts | None = None,
        link: tuple[Link, int] | None = None,
        overheads: Overheads = NONE,
        exchange: str | None = None,
    ) -> None:
        self._exchange = exchange
        self._overheads, self._link = overheads, link and link[0]
        self._model, self._batch_size, self._ranks = model, batch_size, ranks
        self._mesh, self._graph = mesh, surveyed(model)
        self._profiled: set[int] = set()  # numbers of samples
        self._programs: dict[str, Program] = {}  # of meshes that were looked at
        self._outlook = functools.cache(self.outlook)  # one knows what it has looked at
        self._known_on_one = functools.cache(self._ways_on_one)
        self._profile_of = functools.cache(
            lambda rows, on: profile_of_rank(
                model, self._graph, rows, on, layouts, link, report, together=True
            )
        )

    def plan(self, pipeline: Pipeline) -> PipelinePlan:
        """What to expect of a pipeline. Raises ModelError if the model cannot be cut so,
        ScheduleError if there is no such schedule or the ranks cannot form such pipelines,
        MeshError if layouts are of axes or layers that are not there."""
        ranks, mesh = max(self._ranks, pipeline.stages), self._mesh
        replicas = (mesh or pipeline.mesh_of(ranks)).along(DATA)
        check_model(self._model, self._graph, pipeline.micro_batches * replicas)
        schedule = make(
            pipeline.schedule, pipeline.stages, pipeline.micro_batches, pipeline.stages_per_rank
        )

        traffic = traffic_of(self._exchange or "")
        rows = pipeline.rows_of(self._batch_size, replicas)
        on = mesh or Mesh(data=1)

        def profiled() -> Profile:
            profile, _ = self._profile_of(rows, on)
            owners = replicas if traffic.on_owners else 1
            return trained_so(
                profile, pipeline.micro_batches > 1, pipeline.recompute, owners, traffic.late
            )

        wiring = wiring_of(self._graph)
        begins = best_cut(self._graph, pipeline, schedule, profiled)
        stage_models(self._model, self._graph, partition(wiring, begins))  # says what cannot be
        names = [call.name for call in self._graph.calls]
        _, layouts = self._profile_of(rows, on)
        plan = plan_of(
            wiring, profiled(), names, schedule, begins, self._batch_size, replicas,
            self._overheads, lambda maker, user: self._link or ASSUMED, layouts,
            self._exchange or "", link=self._link,
        )  # fmt: skip
        return self._beside_one(plan)

    def best(
        self, ranks: int, link: Link | Network | None, limit_bytes: float
    ) -> tuple[Best, list[PipelinePlan]]:
        """The best ways on so many ranks, and what to expect of each; see :meth:`outlook`."""
        outlook = self._outlook(link, limit_bytes, self.meshes(ranks))
        found = outlook.best(ranks)
        return found, [self._beside_one(outlook.plan(way)) for way, _ in found.found]

    def by_ranks(
        self, best: PipelinePlan, link: Link | Network | None, limit_bytes: float
    ) -> list[dict[str, Any]]:
        """What to expect of the best way on fewer and on more ranks, with the same batch: see
        :mod:`tnt_notebook.plan.by_ranks`. Nothing is measured for it: ways whose micro-batches have
        other numbers of samples than were measured are left out, and numbers of ranks without any.

        Args:
            best: the best way on the ranks that were asked for.
            link, limit_bytes: as of :meth:`outlook`.
        """
        here, plans = best.ranks * best.alike, []
        outlook = self._outlook(link, limit_bytes, self.meshes(here))
        most = link.most_ranks if isinstance(link, Network) else None
        for ranks in numbers_of_ranks(here, most):
            if ranks == here:
                plans.append(best)
                continue
            found = outlook.best(ranks, 1, self._is_measured).found
            plans += [self._beside_one(outlook.plan(way)) for way, _ in found]
        return [row_of(plan) for plan in plans]

    def meshes(self, ranks: int) -> tuple[str, ...]:
        """Along which axes so many ranks could divide the work inside of layers."""
        return meshes_of(self._graph, ranks)

    def outlook(
        self,
        link: Link | Network | None = None,
        limit_bytes: float = float("inf"),
        meshes: tuple[str, ...] = (),
    ) -> Outlook:
        """What to expect of any way.

        Args:
            link: over which replicas add up their gradients; None: that takes no time. Of a
                network, messages between stages go over it, too.
            limit_bytes: the memory that a rank may take.
            meshes: along which the work inside of layers may be divided.
        """
        on_mesh = functools.cache(functools.partial(self._divided, link))

        def check(way: Way, cut: Partition) -> None:
            if is_sharded(way.exchange) and own_step(self._model, "train") is not None:
                raise ModelError(
                    f"With the exchange {way.exchange}, one rank knows the gradient of a weight, "
                    "and the model's train_step may use it on all."
                )
            if way.in_parts:
                check_model(self._model, self._graph, way.micro_batches * way.replicas)
                stage_models(self._model, self._graph, cut)

        return Outlook(
            wiring_of(self._graph), [call.name for call in self._graph.calls],
            self._profile_alone, self._batch_size, link,
            self._overheads, limit_bytes, check,
            lambda made: begins_said(self._graph, Pipeline(made.ranks), made), on_mesh, meshes,
            self._exchange,
        )  # fmt: skip

    def _beside_one(self, plan: PipelinePlan) -> PipelinePlan:
        """The same plan, beside the fastest way on one rank. Nothing is measured for that: where no
        other is known, it does the same micro-batches."""
        among = self._known_on_one() or [Way(1, micro_batches=plan.replicas * plan.micro_batches)]
        judge = self._outlook().judge
        return replace(plan, one_rank_s=min(judge(way).step_s for way in among))

    def _ways_on_one(self) -> list[Way]:
        every = ways(1, self._batch_size, len(self._graph.calls))
        return [w for w in every if self._is_measured(w.rows_of(self._batch_size))]

    def _profile_alone(self, rows: int) -> Profile:
        """Of a rank that does all of the work of so many samples."""
        profile, _ = self._profile_of(rows, Mesh(data=1))
        self._profiled.add(rows)
        return profile

    def _divided(
        self, link: Link | Network | None, rows: int, mesh: str
    ) -> tuple[Profile, MeshPlan]:
        """Of a rank of a mesh along which the work inside of layers is divided."""
        on = Mesh(data=1, **dict(Mesh.parsed(mesh).axes))
        over = message(link, 0, on.size - 1) if isinstance(link, Network) else link
        profile, found = profile_of_rank(
            self._model, self._graph, rows, on, link=over and (over, on.size), together=True,
            known=self._programs,
        )  # fmt: skip
        self._profiled.add(rows)
        if found is None or len(found.whole) == len(found.layers):
            raise ModelError(f"All ranks would do the same on the mesh {mesh}.")
        return profile, found

    def _is_measured(self, rows: int) -> bool:
        known = rows in self._profiled or is_measured(self._model, self._graph, rows, True)
        self._profiled |= {rows} if known else set()
        return known


def profile_of_rank(
    model: keras.Model,
    graph: Graph,
    rows: int,
    mesh: Mesh,
    layouts: Wanted | None = None,
    link: tuple[Link, int] | None = None,
    report: Report | None = None,
    together: bool = False,
    known: dict[str, Program] | None = None,
) -> tuple[Profile, MeshPlan | None]:
    """What the calls of a model take of a rank that has its part of them, for a micro-batch of so
    many samples; and how they are divided, where the mesh divides their work. Measures.

    Args:
        together: see :func:`~tnt_notebook.parallel.layer_graph.profile.profile_of`.
        known: see :func:`~tnt_notebook.parallel.layers.foresight.foreseen`.
    """
    measured = measured_of(model, graph, rows, report, together)
    profile = profile_from(model, graph, rows, measured)
    if not mesh.is_divided:
        return profile, None
    found = foreseen(
        model, mesh, mesh.along(DATA) * rows, layouts, link, measured=measured, graph=graph,
        known=known,
    )  # fmt: skip
    return divided(profile, found.layers), found
