"""ResNet-50 on one GPU: a rank beside plain Keras, as it is and without XLA, which ranks leave.

python -m tests.benchmarks.gpu
"""

from __future__ import annotations

import os

os.environ.setdefault("TF_FORCE_GPU_ALLOW_GROWTH", "true")

import keras
import numpy as np
import tensorflow as tf

import tnt_notebook as tnt
from tests.benchmarks.rounds import machine, ratio, rotating, tell
from tests.benchmarks.training.keras_task import stopwatch
from tests.gpu.required import problem

ROUNDS, SECONDS = 15, 180.0
STEPS, BATCH, SHAPE = 20, 64, (224, 224, 3)
OURS, KERAS, KERAS_XLA = "one rank", "Keras without XLA", "Keras"


def resnet50(xla: bool) -> keras.Model:
    keras.utils.set_random_seed(1)
    model = keras.applications.ResNet50(weights=None, input_shape=SHAPE, classes=10)
    model.compile("sgd", "sparse_categorical_crossentropy", jit_compile=xla)
    return model


def measure() -> str:
    """A line each for steps a second and ratios."""
    x = np.random.default_rng(0).standard_normal((BATCH, *SHAPE), np.float32)
    data = tf.data.Dataset.from_tensors((x, np.arange(BATCH) % 10)).repeat()

    def epoch(model: keras.Model) -> float:
        watch = stopwatch(keras)
        model.fit(data, steps_per_epoch=STEPS, verbose=0, callbacks=[watch])
        return watch.seconds

    models = {
        OURS: tnt.Model(resnet50(xla=False)),
        KERAS: resnet50(xla=False),
        KERAS_XLA: resnet50(xla=True),
    }
    for name, model in models.items():
        tell(f"{name}: the first step took {epoch(model):.0f} s, tracing included")
    turns = [lambda model=model: epoch(model) for model in models.values()]
    seconds = dict(zip(models, rotating(turns, ROUNDS, SECONDS), strict=True))
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
