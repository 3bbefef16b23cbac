"""What it costs to see: steps with the trace and frames twice a second, beside steps without."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time

from tests.benchmarks.rounds import Ratio, interleaved, tell
from tests.support.rank_pool import ROOT, mpiexec, rank_environment

ROUNDS, SECONDS, STEPS = 21, 40.0, 100

#: Name, ranks, and stages.
CASES = [("one rank", 1, 1), ("two ranks", 2, 1), ("a pipeline of two", 2, 2)]


def compared(stages: int) -> Ratio | None:
    """The ratio of step times, on rank 0."""
    import keras
    import numpy as np

    import tnt_notebook as tnt
    from tests.benchmarks.training.keras_task import stopwatch
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
        watch = stopwatch(keras)
        model.fit(x, y, batch_size=64, verbose=0, shuffle=False, callbacks=[watch])
        return float(tnt.world().broadcast(np.array([watch.seconds]))[0])

    def clock() -> float:
        """Rank 0's: all run the same number of rounds."""
        return float(tnt.world().broadcast(np.array([time.monotonic()]))[0])

    def say(line: str) -> None:
        if tnt.world().rank == 0:
            tell(line)

    on, off = fitted(True), fitted(False)
    ratio = interleaved(
        lambda: epoch(on), lambda: epoch(off), ROUNDS, SECONDS, clock=clock, say=say
    )
    if tnt.world().rank == 0 and not any("step_trace" in frame for frame in frames):
        raise RuntimeError("nothing was seen")
    return ratio if tnt.world().rank == 0 else None


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
        ratio = Ratio(**json.loads(run.stdout.strip().splitlines()[-1]))
        print(
            f"a step on {name}, with the trace / without: {ratio.sentence(4)}; "
            f"{1e3 * ratio.b_seconds / STEPS:.2f} ms without",
            flush=True,
        )


if __name__ == "__main__":
    if len(sys.argv) > 1:
        if found := compared(int(sys.argv[1])):
            print(json.dumps(vars(found)))
    else:
        main()
