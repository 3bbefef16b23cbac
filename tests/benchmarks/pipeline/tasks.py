"""What is trained, as data; inputs are noise."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Task:
    """One model.

    Attributes:
        shape: of a sample.
        outputs: shape of a sample's target; the loss is the mean squared error.
        rows: samples of a micro-batch.
        steps: in a turn of a contestant.
    """

    name: str
    title: str
    shape: tuple[int, ...]
    outputs: tuple[int, ...]
    rows: int
    steps: int

    def batch(self, micro_batches: int) -> tuple[np.ndarray, np.ndarray]:
        random = np.random.default_rng(0)
        n = self.rows * micro_batches
        return (
            random.standard_normal((n, *self.shape), np.float32),
            random.standard_normal((n, *self.outputs), np.float32),
        )


DENSE = Task("dense", "8 x Dense(1024), 512 samples a micro-batch", (1024,), (1024,), 512, 2)
RESNET50 = Task(
    "resnet50", "ResNet-50, 8 images of 112x112 a micro-batch", (112, 112, 3), (10,), 8, 1
)
TRANSFORMER = Task(
    "transformer",
    "Transformer of 8 blocks, 8 sequences of 128 x 256 a micro-batch",
    (128, 256),
    (128, 256),
    8,
    2,
)
#: What a cut has to look at: layers that differ, in work and in what they give.
FUNNEL = Task(
    "funnel", "9 layers from 48x48x3 to 10, 16 images a micro-batch", (48, 48, 3), (10,), 16, 2
)

#: Where torch has the same layers.
WITH_TORCH = {task.name: task for task in (DENSE, RESNET50, TRANSFORMER)}
TASKS = {**WITH_TORCH, FUNNEL.name: FUNNEL}
