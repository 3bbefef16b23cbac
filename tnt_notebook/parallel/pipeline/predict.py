"""Plans pipelines for a Keras model, from measurements on this rank alone."""

from __future__ import annotations

import functools

import keras

from tnt_notebook.parallel.layers.foresight import foreseen
from tnt_notebook.parallel.pipeline.cut import best_cut
from tnt_notebook.parallel.pipeline.graph import wiring_of
from tnt_notebook.parallel.pipeline.profile import Report, profile_of
from tnt_notebook.parallel.pipeline.refusals import check_model
from tnt_notebook.parallel.pipeline.stage import stage_models
from tnt_notebook.parallel.pipeline.survey import surveyed
from tnt_notebook.plan.families import make
from tnt_notebook.plan.measurements import Link
from tnt_notebook.plan.mesh import DATA, Layouts, Mesh
from tnt_notebook.plan.options import Pipeline
from tnt_notebook.plan.partition import partition
from tnt_notebook.plan.prediction import PipelinePlan, on_mesh, plan_of
from tnt_notebook.plan.profile import Profile, divided, recomputing


class Planner:
    """Plans several pipelines for a model that is measured once: for batches of all replicas, as if
    there were ranks enough.

    Args:
        mesh: along whose axes the work of stages is divided, of any number of ranks.
        layouts: those that some layers are to have there.
        link: what ranks exchange with, and among how many that was measured.

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
    ) -> None:
        self._model, self._batch_size, self._ranks = model, batch_size, ranks
        self._mesh, self._layouts, self._link = mesh, layouts, link
        self._graph = surveyed(model)
        self._profile_of = functools.cache(
            lambda rows: profile_of(model, self._graph, rows, report)
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

        def measured() -> Profile:
            profile = self._profile_of(pipeline.rows_of(self._batch_size, replicas))
            return recomputing(profile) if pipeline.recompute else profile

        wiring = wiring_of(self._graph)
        begins = best_cut(self._graph, pipeline, schedule, measured)
        stage_models(self._model, self._graph, partition(wiring, begins))  # says what cannot be
        names = [call.name for call in self._graph.calls]
        profile, size = measured(), self._batch_size
        if mesh is None or not mesh.is_divided:
            return plan_of(wiring, profile, names, schedule, begins, size, replicas)
        rows = replicas * pipeline.rows_of(size, replicas)
        found = foreseen(self._model, mesh, rows, self._layouts, self._link)
        profile = divided(profile, found.layers)
        return on_mesh(plan_of(wiring, profile, names, schedule, begins, size, replicas), found)
