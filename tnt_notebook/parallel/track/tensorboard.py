"""Event files of TensorBoard: a folder for each fit, in ``logs``; ``tensorboard --logdir logs``
shows the figures under *Scalars* and the parameters under *HParams*."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import tensorflow as tf

from tnt_notebook.parallel.track.tracker import Fit, Run
from tnt_notebook.telemetry import State


def begin(fit: Fit) -> Run:
    """Begins a run."""
    from tensorboard.plugins.hparams import api_pb2, summary
    from tensorboard.plugins.hparams.api import hparams

    writer = tf.summary.create_file_writer(str(Path(fit.folder or "logs", fit.group, fit.name)))
    with writer.as_default(0):
        hparams(dict(fit.parameters), trial_id=fit.name)
    writer.flush()

    def log(epoch: int, figures: Mapping[str, float]) -> None:
        with writer.as_default(epoch):
            for name, value in figures.items():
                tf.summary.scalar(name, value)
        writer.flush()

    def end(state: State) -> None:
        has_failed = state == "failed"
        status = api_pb2.STATUS_FAILURE if has_failed else api_pb2.STATUS_SUCCESS
        with writer.as_default(0):
            tf.summary.text("tnt/state", state)
            tf.summary.experimental.write_raw_pb(summary.session_end_pb(status).SerializeToString())
        writer.close()

    return Run(log, end)
