"""Exchanges as plain NumPy, for p workers that train a linear model by SGD, step by step.

A batch is ``(x, y)``, x of shape [samples, features], y of [samples, outputs]; the loss is the mean
squared error. Each reference gives the weights after every step, and after every epoch.
"""

import itertools
import math
from collections.abc import Callable, Iterator, Sequence

import numpy as np

Batch = tuple[np.ndarray, np.ndarray]
Epoch = Sequence[Batch]


def _parts(batch: Batch, workers: int) -> list[Batch]:
    x, y = batch
    edges = [len(x) * worker // workers for worker in range(workers + 1)]
    return [(x[begin:end], y[begin:end]) for begin, end in itertools.pairwise(edges)]


def own_gradients(w: np.ndarray, batch: Batch, workers: int) -> list[np.ndarray]:
    """Of each worker its gradient, weighted by the size of its part of the batch."""
    return [
        len(x) / len(batch[0]) * _gradient(w, x, y) if len(x) else np.zeros_like(w)
        for x, y in _parts(batch, workers)
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


def qsgd(
    w: np.ndarray, epochs: Sequence[Epoch], rate: float, workers: int, bits: int = 4
) -> Iterator[np.ndarray]:
    """Each worker sends levels of the largest element of each 512, rounded by chance."""
    levels, number = 2 ** (bits - 1) - 1, 0
    for epoch in epochs:
        for batch in epoch:
            total = np.zeros_like(w)
            for worker, gradient in enumerate(own_gradients(w, batch, workers)):
                flat = gradient.astype("float32").ravel()
                largest = _of_buckets(flat, lambda bucket: np.abs(bucket).max())
                chance = _chance(w.size, (number * workers + worker) * 1009)
                scaled = np.divide(np.abs(flat) * levels, largest, where=largest > 0, out=0 * flat)
                level = np.minimum(np.floor(scaled + chance), levels)
                total += (np.sign(flat) * level * largest / levels).reshape(w.shape)
            w, number = w - rate * total, number + 1
            yield w
        yield w


def _chance(count: int, seed: int) -> np.ndarray:
    """MurmurHash3's finalizer of each place, from 0 to below 1."""
    x = np.arange(count, dtype="uint32") * np.uint32(0x9E3779B9) + np.uint32(seed % 2**32)
    x = (x ^ (x >> np.uint32(16))) * np.uint32(0x85EBCA6B)
    x = (x ^ (x >> np.uint32(13))) * np.uint32(0xC2B2AE35)
    return ((x ^ (x >> np.uint32(16))) >> np.uint32(8)).astype("float32") * np.float32(2.0**-24)


def _of_buckets(flat: np.ndarray, function: Callable[[np.ndarray], float]) -> np.ndarray:
    """A number of each 512 elements, in the place of each of them."""
    buckets = np.split(flat, range(512, len(flat), 512))
    return np.concatenate([np.full(len(b), function(b), flat.dtype) for b in buckets])


def onebit(
    w: np.ndarray, epochs: Sequence[Epoch], rate: float, workers: int
) -> Iterator[np.ndarray]:
    """Each worker sends signs and two means of each 512 elements, and adds what that leaves out to
    its next gradient."""
    errors = [np.zeros(w.size) for _ in range(workers)]
    for epoch in epochs:
        for batch in epoch:
            total = np.zeros_like(w)
            for worker, gradient in enumerate(own_gradients(w, batch, workers)):
                whole = gradient.ravel() + errors[worker]
                below = _of_buckets(whole, lambda bucket: bucket[bucket < 0].mean())
                others = _of_buckets(whole, lambda bucket: bucket[bucket >= 0].mean())
                sent = np.where(whole < 0, below, others)
                errors[worker] = whole - sent
                total += sent.reshape(w.shape)
            w = w - rate * total
            yield w
        yield w


def local(
    w: np.ndarray,
    epochs: Sequence[Epoch],
    rate: float,
    workers: int,
    every: int = 8,
    from_step: int = 0,
) -> Iterator[np.ndarray]:
    """Each worker has weights of its own; the first's are given, and after an epoch the mean."""
    own, learnt, number = [w] * workers, np.zeros(workers), 0
    for epoch in epochs:
        for batch in epoch:
            for worker, part in enumerate(_parts(batch, workers)):
                if len(part[0]):
                    own[worker] = own[worker] - rate * _gradient(own[worker], *part)
                learnt[worker] += len(part[0]) / len(batch[0])
            number += 1
            if number % every == 0 or number <= from_step:
                own, learnt = [_mean(own, learnt)] * workers, np.zeros(workers)
            yield own[0]
        if learnt.any():
            own, learnt = [_mean(own, learnt)] * workers, np.zeros(workers)
        yield own[0]


def _mean(weights: Sequence[np.ndarray], shares: np.ndarray) -> np.ndarray:
    pairs = zip(shares / shares.sum(), weights, strict=True)
    return sum((share * w for share, w in pairs), np.zeros_like(weights[0]))


def elastic(
    w: np.ndarray,
    epochs: Sequence[Epoch],
    rate: float,
    workers: int,
    every: int = 4,
    beta: float = 0.9,
) -> Iterator[np.ndarray]:
    """Each worker is drawn to the centre, and the centre to all; after an epoch all are there."""
    own, centre, number = [w] * workers, w, 0
    for epoch in epochs:
        for batch in epoch:
            for worker, part in enumerate(_parts(batch, workers)):
                if len(part[0]):
                    own[worker] = own[worker] - rate * _gradient(own[worker], *part)
            number += 1
            if number % every == 0:
                apart = [mine - centre for mine in own]
                own = [mine - beta / workers * d for mine, d in zip(own, apart, strict=True)]
                centre = centre + beta / workers * sum(apart, np.zeros_like(w))
            yield own[0]
        own = [centre] * workers
        yield centre


def server(
    w: np.ndarray, epochs: Sequence[Epoch], rate: float, workers: int, staleness: int = 4
) -> Iterator[np.ndarray]:
    """What each worker's step changes is added to common weights. Without staleness all have these;
    with 1 a worker has those of the step before, and its own change."""
    for epoch in epochs:
        own = [w] * workers
        for batch in epoch:
            changes = [
                -rate * len(part[0]) / len(batch[0]) * _gradient(mine, *part) if len(part[0]) else 0
                for mine, part in zip(own, _parts(batch, workers), strict=True)
            ]
            own = [w + change for change in changes]
            w = sum(changes, w)
            if staleness == 0:
                own = [w] * workers
            yield own[0]
        yield w


#: Who meets whom, a row a step: of 2, 3 and 4 workers. A worker that meets itself has no partner.
ROTATING = {
    2: [[1, 0]],
    3: [[0, 2, 1], [1, 0, 2], [2, 1, 0]],
    4: [[1, 0, 3, 2], [2, 3, 0, 1]],
}


def gossip(
    w: np.ndarray, epochs: Sequence[Epoch], rate: float, workers: int
) -> Iterator[np.ndarray]:
    """Each worker adds its own step to the mean with its partner; after an epoch all have the mean
    of all."""
    own, number = [w] * workers, 0
    for epoch in epochs:
        for batch in epoch:
            partners = ROTATING[workers][number % len(ROTATING[workers])]
            mixed = [(own[i] + own[partner]) / 2 for i, partner in enumerate(partners)]
            for worker, part in enumerate(_parts(batch, workers)):
                if len(part[0]):
                    mixed[worker] = mixed[worker] - rate * _gradient(own[worker], *part)
            own, number = mixed, number + 1
            yield own[0]
        own = [sum(own, np.zeros_like(w)) / workers] * workers
        yield own[0]
