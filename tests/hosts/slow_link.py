"""A program of two ranks that says what limits its training: of a pipeline, or of two replicas."""

from __future__ import annotations

import sys

import keras
import numpy as np

import tnt_notebook as tnt
from tnt_notebook import telemetry
from tnt_notebook.telemetry import Frame


def main(how: str) -> None:
    model = keras.Sequential([keras.Input((1024,)), *(keras.layers.Dense(1024) for _ in range(4))])
    model.compile("sgd", "mse")
    pipeline = tnt.Pipeline(2, micro_batches=4) if how == "pipeline" else None
    if pipeline:
        pipeline = tnt.Pipeline(2, micro_batches=4, cut_at=[model.layers[2].name])
    x = np.ones((256, 1024), "float32")
    frames: list[Frame] = []
    with tnt.distributed(report=frames.append, pipeline=pipeline):
        model.fit(x, x, batch_size=256, epochs=6, verbose=0)
    if frames:
        print("LIMIT", telemetry.limit_of(frames))
        print("ERROR", next(f["step_trace"]["clock_error"] for f in frames if "step_trace" in f))


main(sys.argv[1])
