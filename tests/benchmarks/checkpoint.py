"""What checkpoints cost: an epoch with one every second beside an epoch without, on one rank.

python -m tests.benchmarks.checkpoint
"""

import statistics
import tempfile
import time

import keras
import numpy as np

import tnt_notebook as tnt
from tests.benchmarks.fits import epochs, mlp, samples
from tests.benchmarks.rounds import interleaved
from tnt_notebook.parallel.training.fit_checkpoints import FitCheckpoints

STEPS, BATCH, WIDTH = 150, 64, 2048
ROUNDS, SECONDS = 15, 90.0
EVERY_S = 1.0


def measure() -> str:
    """Some lines: the ratio of step times, and what one checkpoint takes."""
    data = samples(STEPS * BATCH)
    held: list[float] = []
    written: dict[float, float] = {}
    take = FitCheckpoints._take

    def timed(self: FitCheckpoints, logs: dict) -> None:
        begin = time.perf_counter()
        take(self, logs)
        held.append(time.perf_counter() - begin)
        if last := self._run.written:
            written[last["time"]] = last["seconds"]

    FitCheckpoints._take = timed  # type: ignore[method-assign]
    with tempfile.TemporaryDirectory() as folder:
        kept, plain = (mlp(keras, WIDTH, WIDTH, optimizer="adam") for _ in range(2))
        models = (
            tnt.Model(kept, checkpoint=tnt.Checkpoint(folder, every_s=EVERY_S)),
            tnt.Model(plain),
        )
        with_it, without = (
            epochs(keras, model, *data, batch_size=BATCH, shuffle=False) for model in models
        )
        with_it(), without()  # traces
        ratio = interleaved(with_it, without, ROUNDS, SECONDS)
    size = sum(int(np.prod(v.shape)) * 4 for v in kept.optimizer.variables) * 1.5
    return (
        f"step with a checkpoint every {EVERY_S:g} s / without "
        f"(1 rank, MLP 784-{WIDTH}-{WIDTH}-10, Adam, {size / 1e6:.0f} MB): {ratio.sentence()}; "
        f"{1e3 * ratio.b_seconds / STEPS:.1f} ms a step without\n"
        f"of {len(held)} checkpoints: the step waits {1e3 * statistics.median(held):.0f} ms, on "
        f"disk after {1e3 * statistics.median(written.values()):.0f} ms (medians)"
    )


if __name__ == "__main__":
    print(measure())
