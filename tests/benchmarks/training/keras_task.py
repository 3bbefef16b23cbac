"""The tasks in Keras, whichever Keras: 3, or the legacy one of tf_keras."""

from __future__ import annotations

import time
from typing import Any

from tests.benchmarks.training.tasks import CLASSES, MLP, Task


def built(keras: Any, task: Task) -> Any:
    """The model, not compiled."""
    keras.utils.set_random_seed(1)
    if task is MLP:
        layers = [keras.layers.Dense(units, "relu") for units in (512, 512)]
        return keras.Sequential([keras.Input(task.shape), *layers, keras.layers.Dense(CLASSES)])
    return keras.applications.ResNet50(
        weights=None, input_shape=task.shape, classes=CLASSES, classifier_activation=None
    )


def compile_for(keras: Any, model: Any) -> None:
    """The same for all. Without XLA: it is slower on CPUs, and steps that exchange leave it."""
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile("sgd", loss, jit_compile=False)


def stopwatch(keras: Any) -> Any:
    """A callback that times the steps of an epoch: not what a call of fit does before and after."""

    class Stopwatch(keras.callbacks.Callback):
        seconds = 0.0

        def on_epoch_begin(self, epoch: int, logs: dict | None = None) -> None:
            self.began = time.perf_counter()

        def on_epoch_end(self, epoch: int, logs: dict | None = None) -> None:
            self.seconds = time.perf_counter() - self.began

    return Stopwatch()
