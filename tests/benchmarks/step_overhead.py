"""What distributed training costs where there is nothing to distribute: one rank against Keras."""

from __future__ import annotations

import keras
import numpy as np

import tnt_notebook as tnt
from tests.benchmarks.rounds import interleaved
from tests.benchmarks.training.keras_task import built, compile_for, stopwatch
from tests.benchmarks.training.tasks import MLP

STEPS, BATCH = 500, 64
ROUNDS, SECONDS = 41, 60.0


def mlp() -> keras.Model:
    model = built(keras, MLP)
    compile_for(keras, model)
    return model


def measure() -> str:
    """One line: the ratio of step times."""
    x = np.random.default_rng(0).normal(size=(STEPS * BATCH, 784)).astype("float32")
    y = np.arange(STEPS * BATCH) % 10
    ours, theirs = tnt.Model(mlp()), mlp()

    def epoch(model: keras.Model) -> float:
        watch = stopwatch(keras)
        model.fit(x, y, batch_size=BATCH, verbose=0, shuffle=False, callbacks=[watch])
        return watch.seconds

    epoch(ours), epoch(theirs)  # traces
    ratio = interleaved(lambda: epoch(ours), lambda: epoch(theirs), ROUNDS, SECONDS)
    return (
        f"step at 1 rank, tnt.Model / keras (MLP 784-512-512-10, batch {BATCH}): "
        f"{ratio.sentence()}; {1e3 * ratio.b_seconds / STEPS:.2f} ms a step in Keras"
    )


if __name__ == "__main__":
    print(measure())
