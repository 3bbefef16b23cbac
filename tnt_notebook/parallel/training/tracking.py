"""Fits that are logged to trackers."""

from __future__ import annotations

import keras

from tnt_notebook.parallel.exchange.named import name_of
from tnt_notebook.parallel.observe.progress import Report
from tnt_notebook.parallel.track.logged import Tracking, check_installed
from tnt_notebook.parallel.training.session import Session
from tnt_notebook.plan.track import Track
from tnt_notebook.telemetry import Phase


def check(session: Session) -> None:
    """Raises TrackerError on all ranks where rank 0 lacks what a tracker needs. Collective."""
    if session.options.track is not None:
        check_installed(session.over, Track.of(session.options.track))


def report_of(
    session: Session,
    model: keras.Model,
    phase: Phase,
    batch_size: int | None,
    epochs: int,
    steps: int | None,
) -> Report | None:
    """What takes the frames of a run on this rank: those of a fit trackers too, on rank 0.

    Args:
        batch_size: of the global batch; None: not known.
        steps: of an epoch; None: not known.
    """
    if session.options.track is None or phase != "fit" or session.over.rank != 0:
        return session.report
    pipeline = session.pipeline
    told = {
        "model": model.name, "optimizer": model.optimizer.name, "ranks": session.over.size,
        "batch_size": batch_size, "epochs": epochs, "steps_per_epoch": steps,
        "exchange": name_of(session.exchange), "mesh": session.mesh and str(session.mesh),
        "stages": pipeline and pipeline.stages, "schedule": pipeline and str(pipeline.schedule),
        "micro_batches": pipeline and pipeline.micro_batches,
    }  # fmt: skip
    known = {name: value for name, value in told.items() if value is not None}
    return Tracking(Track.of(session.options.track), known, session.report)
