"""Runs of MLflow: in the store of a folder, else where ``MLFLOW_TRACKING_URI`` says, else in
MLflow's own default, ``mlflow.db`` where the ranks run. ``MLFLOW_EXPERIMENT_NAME`` is heeded."""

from __future__ import annotations

import logging
import os
import re
import time
from collections.abc import Mapping
from pathlib import Path

from tnt_notebook.parallel.track.tracker import Fit, Run
from tnt_notebook.telemetry import State

_STATUS = {"finished": "FINISHED", "stopped": "KILLED", "failed": "FAILED"}


def begin(fit: Fit) -> Run:
    """Begins a run. It is not MLflow's active one: that is the cell's own."""
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")  # it would use the network
    from mlflow import MlflowClient
    from mlflow.entities import Metric, Param

    logging.getLogger("mlflow.store.db").setLevel(logging.WARNING)  # how it creates its tables
    store = None
    if fit.folder:
        folder = Path(fit.folder).absolute()
        folder.mkdir(parents=True, exist_ok=True)
        store = f"sqlite:///{folder / 'mlflow.db'}"
    client = MlflowClient(store)
    experiment = os.environ.get("MLFLOW_EXPERIMENT_NAME") or "Default"
    found = client.get_experiment_by_name(experiment)
    within = found.experiment_id if found else client.create_experiment(experiment)
    tags = {"group": fit.group} if fit.group else {}
    run = client.create_run(within, run_name=fit.name, tags=tags).info.run_id
    parameters = [Param(_allowed(name), str(value)) for name, value in fit.parameters.items()]
    client.log_batch(run, params=parameters)

    def log(epoch: int, figures: Mapping[str, float]) -> None:
        now = int(time.time() * 1000)
        metrics = [Metric(_allowed(name), value, now, epoch) for name, value in figures.items()]
        client.log_batch(run, metrics=metrics)

    def end(state: State) -> None:
        client.set_terminated(run, _STATUS[state])

    return Run(log, end)


def _allowed(name: str) -> str:
    """A name as MLflow takes it."""
    return re.sub(r"[^\w\-./ ]", "_", name)
