"""Models that are timed, and how; whichever Keras: 3, or the legacy one of tf_keras."""

import time
from collections.abc import Callable
from typing import Any

import numpy as np

CLASSES = 10


def mlp(keras: Any, *widths: int, optimizer: str = "sgd", steps: int = 1) -> Any:
    """784 values, ReLUs of these widths, a score for each class; so many steps an execution."""
    keras.utils.set_random_seed(1)
    layers = [keras.layers.Dense(width, "relu") for width in widths]
    model = keras.Sequential([keras.Input((784,)), *layers, keras.layers.Dense(CLASSES)])
    return _compiled(keras, model, optimizer, steps=steps)


def resnet50(keras: Any, shape: tuple[int, ...] = (112, 112, 3), xla: bool = False) -> Any:
    """From images of this shape to a score for each class."""
    keras.utils.set_random_seed(1)
    model = keras.applications.ResNet50(
        weights=None, input_shape=shape, classes=CLASSES, classifier_activation=None
    )
    return _compiled(keras, model, "sgd", xla)


def samples(count: int, shape: tuple[int, ...] = (784,)) -> tuple[np.ndarray, np.ndarray]:
    """Noise, and labels."""
    x = np.random.default_rng(0).standard_normal((count, *shape), np.float32)
    return x, np.arange(count) % CLASSES


def epochs(keras: Any, model: Any, *data: Any, **options: Any) -> Callable[[], float]:
    """What trains for an epoch when it is called, and gives its seconds.

    Without those of `fit` before and after it; and 0 on ranks other than 0, where no callback runs.

    Args:
        data, options: for `fit`.
    """
    times: list[float] = []

    def now(*_: Any) -> None:
        times.append(time.perf_counter())

    watch = keras.callbacks.LambdaCallback(on_epoch_begin=now, on_epoch_end=now)

    def epoch() -> float:
        times.clear()
        model.fit(*data, verbose=0, callbacks=[watch], **options)
        return times[1] - times[0] if times else 0.0

    return epoch


def _compiled(keras: Any, model: Any, optimizer: str, xla: bool = False, steps: int = 1) -> Any:
    """XLA is slower on CPUs, and steps that exchange leave it."""
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer, loss, jit_compile=xla, steps_per_execution=steps)
    return model
