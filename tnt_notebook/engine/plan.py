"""``%tnt_plan`` on rank 0: plans pipelines and meshes for a model of its cells. Only plain data
goes back."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from IPython import get_ipython

from tnt_notebook import comm, control_group
from tnt_notebook.engine import preload
from tnt_notebook.engine.progress import teller
from tnt_notebook.error_text import brief
from tnt_notebook.errors import MeshError, ModelError, ScheduleError
from tnt_notebook.plan.network import Link
from tnt_notebook.plan.overheads import Overheads
from tnt_notebook.protocol import Published


def plan(
    model: Any,
    pipeline: dict[str, Any],
    schedules: Sequence[str],
    batch_size: int,
    mesh: str | None = None,
    hints: Mapping[str, Mapping[str, str]] | None = None,
    link: Mapping[str, float] | None = None,
    overheads: Mapping[str, Any] | None = None,
    exchange: str | None = None,
) -> dict[str, Any]:
    """Plans a pipeline with each of some schedules; on one rank.

    Args:
        model: its name in the cells, or itself.
        pipeline: keyword arguments of ``tnt_notebook.Pipeline``.
        batch_size: samples of a global batch.
        mesh, hints, link: as of :func:`plan_mesh`, where the work of stages is divided.
        overheads: what :func:`measure_overheads` gave; None: they are not known.
        exchange: of replicas, as it is typed; None: an allreduce.

    Returns:
        ``{"plans": [...], "measured": n}``: of each schedule what
        :func:`tnt_notebook.plan.prediction.as_json` gives, or
        ``{"schedule": name, "refused": why}``; and how many layers had to be measured. If no plan
        can be made, ``{"kind": class, "refused": why}``.
    """
    # They load TensorFlow: later, so that an engine begins without it.
    preload.finish()
    from tnt_notebook.parallel.pipeline.predict import Planner
    from tnt_notebook.plan.hints import layouts_of
    from tnt_notebook.plan.mesh import Mesh
    from tnt_notebook.plan.options import Pipeline
    from tnt_notebook.plan.prediction import as_json

    progress = _Progress()
    plans: list[dict[str, Any]] = []
    try:
        wanted = Pipeline(**pipeline)
        planner = Planner(
            _model(model), batch_size, comm.world().size, progress,
            Mesh.parsed(mesh) if mesh else None, layouts_of(hints or {}), _known(link),
            _overheads(overheads), exchange,
        )  # fmt: skip
        for schedule in schedules:
            try:
                plans.append(as_json(planner.plan(dataclasses.replace(wanted, schedule=schedule))))
            except (ModelError, ScheduleError) as error:
                if len(schedules) == 1:
                    raise
                plans.append({"schedule": schedule, "refused": str(error)})
    except (ModelError, ScheduleError, MeshError) as error:
        return _refusal(error)
    return {"plans": plans, "measured": progress.measured}


def _refusal(error: Exception) -> dict[str, str]:
    """Why there is no plan, as plain data."""
    return {"kind": type(error).__name__, "refused": str(error)}


class _Progress:
    """Publishes how many of how many layers are measured. ``measured``: how many had to be."""

    def __init__(self) -> None:
        self.measured, self._tell = 0, teller(Published.PLANNED)

    def __call__(self, done: int, total: int) -> None:
        self.measured = max(self.measured, total)
        self._tell({"done": done, "total": total})


def plan_best(
    name: str,
    ranks: int,
    batch_size: int,
    link: Mapping[str, float] | None,
    overheads: Mapping[str, Any] | None,
    memory_limit: int | None,
    network: Mapping[str, Any] | None = None,
    exchange: str | None = None,
) -> dict[str, Any]:
    """Looks for the best ways to train a model on so many ranks; on one rank.

    Args:
        name: of the model in the cells.
        batch_size: samples of a global batch.
        link: what :func:`measure_link` gave; None: it is not known.
        overheads: what :func:`measure_overheads` gave.
        memory_limit: bytes that a rank may need; None: its share of this host's.
        network: what ranks are to exchange with instead, as
            :func:`tnt_notebook.plan.network.as_json` gives it.
        exchange: of replicas, as it is typed; None: the best one.

    Returns:
        ``{"plans": [...], "there_are": n, "too_large": (n, bytes), "refused_ways": {why: n},
        "limit": bytes, "measured": n, "by_ranks": [...]}``: the fastest first, as
        :func:`tnt_notebook.plan.prediction.as_json` gives them, of how many ways, and why others
        are none; and the fastest on fewer and more ranks, of :mod:`tnt_notebook.plan.by_ranks`; or
        ``{"kind": class, "refused": why}``.
    """
    preload.finish()
    from tnt_notebook.parallel.pipeline.predict import Planner
    from tnt_notebook.plan.network import ASSUMED, from_json
    from tnt_notebook.plan.prediction import as_json

    progress = _Progress()
    world = comm.world()
    limit = memory_limit or control_group.share_of(world.rank, world.hosts)
    try:
        known = _known(link)
        over = from_json(network) if network else known[0] if known else ASSUMED
        planner = Planner(
            _model(name), batch_size, ranks, progress, overheads=_overheads(overheads),
            exchange=exchange,
        )  # fmt: skip
        found, plans = planner.best(ranks, over, limit)
        by_ranks = planner.by_ranks(plans[0], over, limit) if plans else []
    except ModelError as error:
        return _refusal(error)
    return {
        "plans": [as_json(plan) for plan in plans], "there_are": found.there_are,
        "too_large": found.too_large, "refused_ways": found.refused, "limit": limit,
        "measured": progress.measured, "by_ranks": by_ranks, "meshes": planner.meshes(ranks),
    }  # fmt: skip


def plan_mesh(
    name: str,
    mesh: str,
    hints: Mapping[str, Mapping[str, str]],
    batch_size: int,
    link: Mapping[str, float] | None,
    memory_limit: int | None,
) -> dict[str, Any]:
    """Plans the layouts of a model on a mesh; on one rank.

    Args:
        name: of the model in the cells.
        mesh: all its axes, as they are typed.
        hints: as :func:`tnt_notebook.plan.hints.parsed_hints` gives them.
        batch_size: samples of a global batch.
        link: what :func:`measure_link` gave; None: it is not known.
        memory_limit: bytes that a rank may need.

    Returns:
        ``{"plan": ..., "measured": n}``: what :func:`tnt_notebook.plan.layouts.as_json` gives, and
        how many layers had to be measured; or ``{"kind": class, "refused": why}``.
    """
    preload.finish()
    from tnt_notebook.parallel.layers.foresight import foreseen
    from tnt_notebook.plan.hints import layouts_of
    from tnt_notebook.plan.layouts import as_json
    from tnt_notebook.plan.mesh import Mesh

    progress = _Progress()
    try:
        found = foreseen(
            _model(name), Mesh.parsed(mesh), batch_size, layouts_of(hints), _known(link),
            memory_limit, progress,
        )  # fmt: skip
    except (ModelError, MeshError) as error:
        return _refusal(error)
    return {"plan": as_json(found), "measured": progress.measured}


def measure_link() -> dict[str, float]:
    """What ranks exchange with, measured unless it is known from earlier. Collective over all.

    Returns:
        ``latency_s`` and ``bytes_per_s``, and among how many ``ranks``; nothing of one rank.
    """
    from tnt_notebook.parallel.layers.link import measured_link

    over = comm.world()
    with _peers_freed():
        link = measured_link(over)
    return {} if link is None else {**link._asdict(), "ranks": over.size}


def measure_overheads(model: Any, batch_size: int) -> dict[str, Any]:
    """What a step of a model takes beside its layers, measured unless it is known from earlier.
    Collective over all.

    Args:
        model: its name in the cells, or itself.
        batch_size: samples of a global batch.

    Returns:
        ``{"overheads": ..., "fits": pairs}``: of
        :class:`tnt_notebook.plan.overheads.Overheads`, and what plans have promised on these ranks
        and what was measured, see :func:`tnt_notebook.plan.measurements.fits`; or
        ``{"kind": class, "refused": why}``.
    """
    preload.finish()
    from tnt_notebook.parallel.consistency import agreement
    from tnt_notebook.parallel.layer_graph.survey import surveyed
    from tnt_notebook.parallel.training.overheads import overheads_of
    from tnt_notebook.parallel.training.scope import call, whole_world
    from tnt_notebook.plan import measurements

    refused = {}
    with _peers_freed():
        over = whole_world()
        try:
            model = _model(model)
            graph = surveyed(model)
        except ModelError as error:
            refused = _refusal(error)
        if why := next(filter(None, agreement.everyones(over, refused)), None):
            return why
        try:
            found = overheads_of(over, model, graph, -(-batch_size // over.size), call)
        except ModelError as error:
            return _refusal(error)
    fits = measurements.fits(found.ranks_key) if over.rank == 0 else []
    return {"overheads": vars(found), "fits": fits}


@contextlib.contextmanager
def _peers_freed() -> Iterator[None]:
    """Inside, other ranks do not wait for this one if it fails."""
    try:
        yield
    except BaseException as error:  # Ctrl-C too
        if not getattr(error, "peers_know", False):
            comm.abort(f"rank {comm.rank()}: {brief(error)}")
        raise


def _overheads(measured: Mapping[str, Any] | None) -> Overheads:
    """What :func:`measure_overheads` gave; None: nothing is known."""
    return Overheads(**measured or {})


def _known(link: Mapping[str, float] | None) -> tuple[Link, int] | None:
    """What :func:`measure_link` gave, and among how many ranks."""
    if not link:
        return None
    return Link(link["latency_s"], link["bytes_per_s"]), int(link["ranks"])


def _model(name: Any) -> Any:
    """The Keras model that a name stands for in the cells, or that is given itself."""
    import keras

    if isinstance(name, keras.Model):
        return name
    namespace = get_ipython().user_ns
    if name not in namespace:
        known = [key for key, value in namespace.items() if isinstance(value, keras.Model)]
        models = [key for key in known if not key.startswith("_")]
        hint = f" There {'are' if len(models) > 1 else 'is'} {', '.join(models)}." if models else ""
        raise ModelError(
            f"{name!r} is not defined in the cells of the ranks.{hint} Define the model there "
            "first: in a cell of %%tnt, or of %%tnt_fit."
        )
    value = namespace[name]
    value = getattr(value, "keras_model", value)  # of a tnt.Model
    if not isinstance(value, keras.Model):
        raise ModelError(f"{name!r} is a {type(value).__name__}, not a Keras model.")
    return value
