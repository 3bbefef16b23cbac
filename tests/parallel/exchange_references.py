"""Exchanges as plain NumPy, for p workers that train a linear model by SGD, step by step.

A batch is ``(x, y)``, x of shape [samples, features], y of [samples, outputs]; the loss is the mean
squared error. Each reference gives the weights after every step, and after every epoch.
"""

from collections.abc import Iterator, Sequence

import numpy as np

Batch = tuple[np.ndarray, np.ndarray]
Epoch = Sequence[Batch]


def mean_gradient(w: np.ndarray, batch: Batch, workers: int) -> np.ndarray:
    """The mean of the workers' gradients, each of its part of the batch, weighted by its size."""
    parts = [np.array_split(array, workers) for array in batch]
    found = [
        len(x) / len(batch[0]) * _gradient(w, x, y) for x, y in zip(*parts, strict=True) if len(x)
    ]
    return sum(found[1:], found[0])


def _gradient(w: np.ndarray, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    error = x @ w - y
    return 2 * x.T @ error / error.size


def allreduce(
    w: np.ndarray, epochs: Sequence[Epoch], rate: float, workers: int
) -> Iterator[np.ndarray]:
    """What one process does with the whole batch."""
    for epoch in epochs:
        for batch in epoch:
            w = w - rate * mean_gradient(w, batch, workers)
            yield w
        yield w


def late(
    w: np.ndarray,
    epochs: Sequence[Epoch],
    rate: float,
    workers: int,
    steps: int = 1,
    warmup: int = 0,
) -> Iterator[np.ndarray]:
    """After the warm-up gradients wait in a queue of so many, which the end of an epoch empties."""
    number = 0
    for epoch in epochs:
        queue: list[np.ndarray] = []
        for batch in epoch:
            queue.append(mean_gradient(w, batch, workers))
            if number < warmup or len(queue) > steps:
                w = w - rate * queue.pop(0)
            number += 1
            yield w
        for gradient in queue:
            w = w - rate * gradient
        yield w
