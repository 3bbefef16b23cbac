"""What distributed training costs where there is nothing to distribute: one rank against Keras."""

import keras

import tnt_notebook as tnt
from tests.benchmarks.fits import epochs, mlp, samples
from tests.benchmarks.rounds import interleaved

STEPS, BATCH = 500, 64
ROUNDS, SECONDS = 41, 60.0


def measure() -> str:
    """One line: the ratio of step times."""
    data = samples(STEPS * BATCH)
    models = tnt.Model(mlp(keras, 512, 512)), mlp(keras, 512, 512)
    ours, theirs = (epochs(keras, m, *data, batch_size=BATCH, shuffle=False) for m in models)
    ours(), theirs()  # traces
    ratio = interleaved(ours, theirs, ROUNDS, SECONDS)
    return (
        f"step at 1 rank, tnt.Model / keras (MLP 784-512-512-10, batch {BATCH}): "
        f"{ratio.sentence()}; {1e3 * ratio.b_seconds / STEPS:.2f} ms a step in Keras"
    )


if __name__ == "__main__":
    print(measure())
