"""What distributed training costs where there is nothing to distribute: one rank against Keras."""

from __future__ import annotations

import time

import keras
import numpy as np

import tnt_notebook as tnt
from tests.benchmarks.rounds import interleaved

STEPS, BATCH = 500, 64


def mlp() -> keras.Model:
    keras.utils.set_random_seed(1)
    layers = [keras.layers.Dense(n, "relu") for n in (512, 512)]
    model = keras.Sequential([keras.Input((784,)), *layers, keras.layers.Dense(10)])
    # jit_compile=False on both sides: tnt.Model leaves XLA, so that only its own work is compared.
    model.compile(
        "sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True), jit_compile=False
    )
    return model


class Stopwatch(keras.callbacks.Callback):
    """Times the steps of an epoch: not what a call of fit does before and after them."""

    def on_epoch_begin(self, epoch: int, logs: dict | None = None) -> None:
        self.began = time.perf_counter()

    def on_epoch_end(self, epoch: int, logs: dict | None = None) -> None:
        self.seconds = time.perf_counter() - self.began


def measure(rounds: int = 41) -> str:
    """One line: the ratio of step times."""
    x = np.random.default_rng(0).normal(size=(STEPS * BATCH, 784)).astype("float32")
    y = np.arange(STEPS * BATCH) % 10
    ours, theirs = tnt.Model(mlp()), mlp()

    def epoch(model: keras.Model) -> float:
        watch = Stopwatch()
        model.fit(x, y, batch_size=BATCH, verbose=0, shuffle=False, callbacks=[watch])
        return watch.seconds

    epoch(ours), epoch(theirs)  # traces
    ratio = interleaved(lambda: epoch(ours), lambda: epoch(theirs), rounds)
    return (
        f"step at 1 rank, tnt.Model / keras (MLP 784-512-512-10, batch {BATCH}): "
        f"{ratio.median:.3f} (quartiles {ratio.low:.3f} to {ratio.high:.3f}), "
        f"fastest rounds {ratio.fastest:.3f}; "
        f"{1e3 * ratio.b_seconds / STEPS:.2f} ms a step in Keras"
    )


if __name__ == "__main__":
    print(measure())
