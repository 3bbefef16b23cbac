"""A program of two ranks that says what limits its training: of two replicas, and of a pipeline."""

from __future__ import annotations

import keras
import numpy as np

import tnt_notebook as tnt
from tnt_notebook import telemetry
from tnt_notebook.telemetry import Frame


def train(how: str) -> None:
    layers = [keras.layers.Dense(1024, name=f"{how}_{number}") for number in range(4)]
    model = keras.Sequential([keras.Input((1024,)), *layers])
    model.compile("sgd", "mse")
    staged = tnt.Pipeline(2, micro_batches=4, cut_at=[layers[2].name])
    x = np.ones((256, 1024), "float32")
    frames: list[Frame] = []
    with tnt.distributed(report=frames.append, pipeline=staged if how == "pipeline" else None):
        model.fit(x, x, batch_size=256, epochs=6, verbose=0)
    if frames:
        error = next(f["step_trace"]["clock_error"] for f in frames if "step_trace" in f)
        print(f"LIMIT {how} {error} {telemetry.limit_of(frames)}")


train("replicas")
train("pipeline")
