"""Exchanges as plain NumPy, for p workers that train a linear model by SGD, step by step.

A batch is ``(x, y)``, x of shape [samples, features], y of [samples, outputs]; the loss is the mean
squared error. Each reference gives the weights after every step, and after every epoch.
"""

import itertools
import math
from collections.abc import Iterator, Sequence

import numpy as np

Batch = tuple[np.ndarray, np.ndarray]
Epoch = Sequence[Batch]


def own_gradients(w: np.ndarray, batch: Batch, workers: int) -> list[np.ndarray]:
    """Of each worker its gradient, weighted by the size of its part of the batch."""
    x, y = batch
    edges = [len(x) * worker // workers for worker in range(workers + 1)]
    return [
        (end - begin) / len(x) * _gradient(w, x[begin:end], y[begin:end])
        if begin < end
        else np.zeros_like(w)
        for begin, end in itertools.pairwise(edges)
    ]


def mean_gradient(w: np.ndarray, batch: Batch, workers: int) -> np.ndarray:
    """Of the whole batch."""
    return sum(own_gradients(w, batch, workers), np.zeros_like(w))


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


def topk(
    w: np.ndarray, epochs: Sequence[Epoch], rate: float, workers: int, ratio: float = 0.01
) -> Iterator[np.ndarray]:
    """Each worker sends its largest elements, and adds the others to its next gradient."""
    errors = [np.zeros_like(w) for _ in range(workers)]
    count = math.ceil(ratio * w.size)
    for epoch in epochs:
        for batch in epoch:
            total = np.zeros_like(w)
            for worker, gradient in enumerate(own_gradients(w, batch, workers)):
                whole = gradient + errors[worker]
                chosen = np.argsort(-np.abs(whole), axis=None)[:count]
                sent = np.zeros_like(w)
                sent.flat[chosen] = whole.flat[chosen]
                errors[worker] = whole - sent
                total += sent
            w = w - rate * total
            yield w
        yield w


def powersgd(
    w: np.ndarray, epochs: Sequence[Epoch], rate: float, workers: int, rank: int = 2
) -> Iterator[np.ndarray]:
    """All project on the same subspace, and add what it misses to their next gradients."""
    errors = [np.zeros_like(w) for _ in range(workers)]
    right = np.random.default_rng(w.shape[1]).standard_normal((w.shape[1], rank))
    for epoch in epochs:
        for batch in epoch:
            pairs = zip(own_gradients(w, batch, workers), errors, strict=True)
            wholes = [gradient + error for gradient, error in pairs]
            basis, _ = np.linalg.qr(sum(whole @ right for whole in wholes))
            errors = [whole - basis @ (basis.T @ whole) for whole in wholes]
            right = sum(whole.T @ basis for whole in wholes)
            w = w - rate * basis @ right.T
            yield w
        yield w
