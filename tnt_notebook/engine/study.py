"""A study of scaling on a rank: a cell on the first ranks of the cluster, as on a smaller one.

Those that do not take part wait for the next request, and take no time of a processor. What a plan
needs to know is measured after the cell, on the model that it has trained.
"""

from __future__ import annotations

import math
import os
import platform
from collections.abc import Sequence
from importlib import metadata
from typing import Any

from tnt_notebook import comm
from tnt_notebook.comm import tuning
from tnt_notebook.comm.tuning.contestants import chosen
from tnt_notebook.engine import preload, trial
from tnt_notebook.engine.fit import run_distributed
from tnt_notebook.error_text import brief
from tnt_notebook.errors import ModelError, ScheduleError

_EXCHANGE_ROUNDS = 5
_MOST_BYTES = 16 << 20  # of a vector whose exchange is measured: larger ones lie on the same line

_model: Any = None


def run(cell: str, options: dict[str, Any], kept: dict[str, Any] | None) -> dict[str, Any]:
    """Runs a cell distributed over the group of this rank, which is a world for it. Collective over
    that. It leaves no names in the cells of the rank, and changes none.

    Args:
        cell, options, kept: as of :func:`tnt_notebook.engine.fit.run_fit_cell`.

    Returns:
        What that returns.
    """
    global _model
    _model = None
    with trial.in_part() as part:
        # What the last line gives is of no use, so often.
        result, runs = run_distributed(f"{cell.rstrip()}\n_tnt_done = None\n", options, kept)
        if part.rank == 0:
            fits = [run for run in runs if run.kind == "fit"]
            _model = fits[-1].model if fits else None
    return result


def exchange(bytes: int) -> dict[str, Any]:
    """How long an exchange of so many bytes takes among the ranks of this group, by the algorithms
    that the rules in use take. Collective over the group.

    Returns:
        Plain data: ``algorithm``, ``latency_s``, ``bytes_per_s`` (None: as fast as can be).
    """
    with trial.in_part() as part:
        largest = max(1024, min(bytes, _MOST_BYTES))
        question = tuning.Question(max_bytes=largest, rounds=_EXCHANGE_ROUNDS)
        names = {chosen(part, question, size) for size in question.sizes}
        wanted = chosen(part, question, largest)
        question = tuning.Question(largest, algorithms=tuple(names), rounds=_EXCHANGE_ROUNDS)
        try:
            fits = tuning.measure(part, question)["fits"]
        except BaseException as error:  # Ctrl-C too: the others must not wait for this rank
            if not getattr(error, "peers_know", False):
                comm.abort(f"rank {part.rank}: {brief(error)}")
            raise
        return next(fit for fit in fits if fit["algorithm"] == wanted)


def expect(options: dict[str, Any], asked: Sequence[tuple[int, int]]) -> dict[str, Any]:
    """What ``%tnt_plan`` would say of the model that was trained last; on one rank.

    Args:
        options: of the fits, as of :func:`tnt_notebook.engine.fit.run_fit_cell`.
        asked: numbers of ranks, and samples of a global batch.

    Returns:
        ``{"steps": [...], "trained_bytes": n}``: of each the seconds of a step without exchange
        between replicas, None where there is no plan; ``"refused"`` then says why.
    """
    preload.finish()
    from tnt_notebook.parallel.pipeline.predict import Planner
    from tnt_notebook.plan.options import Pipeline

    if _model is None:
        return {"steps": [None] * len(asked), "trained_bytes": 0, "refused": "no fit was done"}
    trained = sum(math.prod(v.shape) * v.value.dtype.size for v in _model.trainable_variables)
    answer: dict[str, Any] = {"steps": [], "trained_bytes": trained}
    if "mesh" in options:
        refused = "a mesh is planned by %tnt_plan --mesh"
        return {**answer, "steps": [None] * len(asked), "refused": refused}
    cut = Pipeline(**options.get("pipeline", {"stages": 1, "micro_batches": 1}))
    for ranks, batch in asked:
        try:
            step: float | None = Planner(_model, batch, ranks).plan(cut).step_s
        except (ModelError, ScheduleError) as error:
            step = None
            answer.setdefault("refused", str(error))
        answer["steps"].append(step)
    return answer


def machine() -> dict[str, Any]:
    """What this rank runs on, and with what, in plain data."""
    preload.finish()
    import keras
    import numpy as np
    import tensorflow as tf

    from tnt_notebook.parallel.observe import meters

    world = comm.world()
    gpus = [tf.config.experimental.get_device_details(one).get("device_name", "GPU")
            for one in tf.config.list_physical_devices("GPU")]  # fmt: skip
    return {
        "host": world.hosts[world.rank],
        "processor": _processor(),
        "cores": sorted(os.sched_getaffinity(0)),
        "load": os.getloadavg()[0],
        "gpus": gpus,
        "links": world.links.describe(),
        "energy": meters.uncounted(),
        "versions": {
            "tnt_notebook": metadata.version("tnt_notebook"), "Python": platform.python_version(),
            "TensorFlow": tf.__version__, "Keras": keras.__version__, "NumPy": np.__version__,
            "Linux": platform.release(),
        },
    }  # fmt: skip


def forget() -> None:
    """Lets the model of the last cell go."""
    global _model
    _model = None


def _processor() -> str:
    """Its name, as Linux has it; elsewhere the kind of machine."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            named = [
                line.partition(":")[2].strip() for line in file if line.startswith("model name")
            ]
    except OSError:
        named = []
    return named[0] if named else platform.machine()
