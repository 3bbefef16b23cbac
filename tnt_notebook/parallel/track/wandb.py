"""Runs of Weights & Biases, kept on disk: ``wandb sync`` uploads them. Only where the environment
has another ``WANDB_MODE``, such as ``online``, the network is used."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from tnt_notebook.parallel.track.tracker import Fit, Run
from tnt_notebook.telemetry import State


def begin(fit: Fit) -> Run:
    """Begins a run."""
    mode: Literal["offline"] | None = None if os.environ.get("WANDB_MODE") else "offline"
    if mode == "offline":
        os.environ.setdefault("WANDB_ERROR_REPORTING", "false")  # it would use the network
    import wandb

    folder = Path(fit.folder).absolute()  # its service stays where the first run began
    folder.mkdir(parents=True, exist_ok=True)  # or it takes a temporary one
    # Beside a run that the cell itself may have begun; and what ranks print stays theirs.
    run = wandb.init(
        mode=mode, dir=str(folder), name=fit.name, group=fit.group or None,
        config=dict(fit.parameters), reinit="create_new",
        settings=wandb.Settings(console="off", silent=True),
    )  # fmt: skip

    def log(epoch: int, figures: Mapping[str, float]) -> None:
        run.log(dict(figures), step=epoch)

    def end(state: State) -> None:
        run.summary["tnt/state"] = state
        run.finish(exit_code=int(state == "failed"))

    return Run(log, end)
