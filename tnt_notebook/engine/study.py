"""A study of scaling on a rank: a cell on the first ranks of the cluster, as on a smaller one.

Those that do not take part wait for the next request, and take no time of a processor. What a plan
needs to know is measured after the cell, on the model that it has trained.
"""

from __future__ import annotations

import os
import platform
from importlib import metadata
from typing import Any

from tnt_notebook import comm
from tnt_notebook.engine import plan, preload, trial
from tnt_notebook.engine.fit import run_distributed

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
    with trial.in_part():
        # What the last line gives is of no use, so often.
        result, runs = run_distributed(f"{cell.rstrip()}\n_tnt_done = None\n", options, kept)
        fits = [run for run in runs if run.kind == "fit"]
        _model = fits[-1].model if fits else None
    return result


def expect(options: dict[str, Any], batch_size: int) -> dict[str, Any]:
    """What ``%tnt_plan`` says of the model that was trained last, in the way that it was, with what
    is measured among the ranks of this group. Collective over the group.

    Args:
        options: of the fits, as of :func:`tnt_notebook.engine.fit.run_fit_cell`.
        batch_size: samples of a global batch.

    Returns:
        On the first rank as :func:`tnt_notebook.engine.plan.plan`; where there is no plan, on all
        ``{"refused": why}``.
    """
    from tnt_notebook.plan.mesh import Mesh
    from tnt_notebook.plan.traffic import with_buckets

    exchange = options.get("exchange")
    if "bucket_mb" in options:
        exchange = with_buckets("", options["bucket_mb"])
    pipeline = {"schedule": "1f1b", **options.get("pipeline", {"stages": 1, "micro_batches": 1})}
    with trial.in_part() as part:
        measured = plan.measure_overheads(_model, batch_size)
        if "refused" in measured:
            return measured
        link = plan.measure_link()
        if part.rank > 0:
            return {}
        return plan.plan(
            _model, pipeline, [pipeline["schedule"]], batch_size,
            str(Mesh.parsed(options["mesh"]).of(part.size)) if "mesh" in options else None,
            options.get("layouts"), link, measured["overheads"], exchange,
        )  # fmt: skip


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
