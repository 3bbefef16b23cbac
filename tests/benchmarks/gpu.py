"""ResNet-50 on one GPU: a rank beside plain Keras, as it is and without XLA, which ranks leave.

python -m tests.benchmarks.gpu
"""

import os

os.environ.setdefault("TF_FORCE_GPU_ALLOW_GROWTH", "true")

import keras
import tensorflow as tf

import tnt_notebook as tnt
from tests.benchmarks.fits import epochs, resnet50, samples
from tests.benchmarks.rounds import machine, ratio, rotating, tell
from tests.gpu.required import problem

ROUNDS, SECONDS = 15, 180.0
STEPS, BATCH, SHAPE = 20, 64, (224, 224, 3)
OURS, KERAS, KERAS_XLA = "one rank", "Keras without XLA", "Keras"


def measure() -> str:
    """A line each for steps a second and ratios."""
    data = tf.data.Dataset.from_tensors(samples(BATCH, SHAPE)).repeat()
    models = {
        OURS: tnt.Model(resnet50(keras, SHAPE)),
        KERAS: resnet50(keras, SHAPE),
        KERAS_XLA: resnet50(keras, SHAPE, xla=True),
    }
    turns = {name: epochs(keras, m, data, steps_per_epoch=STEPS) for name, m in models.items()}
    for name, epoch in turns.items():
        tell(f"{name}: the first step took {epoch():.0f} s, tracing included")
    seconds = rotating(turns, ROUNDS, SECONDS)
    lines = [f"ResNet-50, {BATCH} images of {SHAPE[0]}x{SHAPE[1]} a step, float32"]
    for name in (KERAS, KERAS_XLA):
        found = ratio(seconds[name], seconds[OURS])
        ours, theirs = STEPS / found.b_seconds, STEPS / found.a_seconds
        lines.append(
            f"steps/s, {OURS} / {name}: {found.sentence()}; {ours:.2f} and {theirs:.2f} steps/s"
        )
    return "\n".join(lines)


def gpu() -> str:
    """What the figures were measured on."""
    (first, *_) = tf.config.list_physical_devices("GPU")
    name = tf.config.experimental.get_device_details(first).get("device_name", "a GPU")
    cuda = tf.sysconfig.get_build_info().get("cuda_version")
    return f"{name}, CUDA {cuda}, TensorFlow {tf.__version__}; {machine()}"


if __name__ == "__main__":
    if why := problem():
        raise SystemExit(why)
    print(gpu(), flush=True)
    print(measure())
