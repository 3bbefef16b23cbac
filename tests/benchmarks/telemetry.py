"""What it costs to see: steps with the trace and frames twice a second, beside steps without."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time

from tests.benchmarks.rounds import interleaved
from tests.support.rank_pool import ROOT, mpiexec, rank_environment

ROUNDS, STEPS = 21, 100

#: Name, ranks, and stages.
CASES = [("one rank", 1, 1), ("two ranks", 2, 1), ("a pipeline of two", 2, 2)]


def compared(stages: int) -> dict[str, float]:
    """On a rank: the ratio of step times."""
    import keras
    import numpy as np

    import tnt_notebook as tnt
    from tnt_notebook.telemetry import Frame

    frames: list[Frame] = []
    x = np.random.default_rng(0).normal(size=(STEPS * 64, 784)).astype("float32")
    y = np.arange(STEPS * 64) % 10

    def fitted(traced: bool) -> keras.Model:
        os.environ["TNT_TRACE"] = "1" if traced else "0"  # read when a step is traced
        keras.utils.set_random_seed(1)
        layers = [keras.layers.Dense(512, "relu") for _ in range(4)]
        model = keras.Sequential([keras.Input((784,)), *layers, keras.layers.Dense(10)])
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile("sgd", loss, jit_compile=False)
        cut = tnt.Pipeline(2, 4, cut_at=[model.layers[2].name]) if stages > 1 else None
        made = tnt.Model(model, pipeline=cut)
        made._session.report = frames.append if traced else None
        epoch(made)
        return made

    def epoch(model: keras.Model) -> float:
        watch = Stopwatch()
        model.fit(x, y, batch_size=64, verbose=0, shuffle=False, callbacks=[watch])
        return float(tnt.world().broadcast(np.array([watch.seconds]))[0])

    class Stopwatch(keras.callbacks.Callback):
        seconds = 0.0

        def on_epoch_begin(self, epoch, logs=None):
            self.began = time.perf_counter()

        def on_epoch_end(self, epoch, logs=None):
            self.seconds = time.perf_counter() - self.began

    on, off = fitted(True), fitted(False)
    ratio = interleaved(lambda: epoch(on), lambda: epoch(off), ROUNDS)
    if tnt.world().rank == 0 and not any("step_trace" in frame for frame in frames):
        raise RuntimeError("nothing was seen")
    return {**vars(ratio), "rank": tnt.world().rank}


def main() -> None:
    for name, ranks, stages in CASES:
        run = subprocess.run(
            [*mpiexec(ranks), sys.executable, "-m", "tests.benchmarks.telemetry", str(stages)],
            cwd=ROOT,
            env=rank_environment(),
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        )
        found = json.loads(run.stdout.strip().splitlines()[-1])
        print(
            f"a step on {name}, with the trace / without: {found['median']:.4f} "
            f"(quartiles {found['low']:.4f} to {found['high']:.4f}); "
            f"{1e3 * found['b_seconds'] / STEPS:.2f} ms without"
        )


if __name__ == "__main__":
    if len(sys.argv) > 1:
        found = compared(int(sys.argv[1]))
        if found.pop("rank") == 0:
            print(json.dumps(found))
    else:
        main()
