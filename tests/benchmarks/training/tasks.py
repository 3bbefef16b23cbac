"""What is trained, as data; and the samples, which are noise."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

CLASSES = 10


@dataclass(frozen=True)
class Task:
    """One model and its input.

    Attributes:
        shape: of a sample, channels last.
        batch: samples that a rank has in each step.
        steps: in each turn of a contestant.
    """

    name: str
    title: str
    shape: tuple[int, ...]
    batch: int
    steps: int

    def samples(self, ranks: int = 1) -> tuple[np.ndarray, np.ndarray]:
        """Inputs and labels of one turn, for so many ranks."""
        count = self.steps * self.batch * ranks
        x = np.random.default_rng(0).standard_normal((count, *self.shape), np.float32)
        return x, np.arange(count) % CLASSES


MLP = Task("mlp", "MLP 784-512-512-10, batch 64 a rank", (784,), 64, 100)
RESNET50 = Task("resnet50", "ResNet-50, batch 8 of 112x112 a rank", (112, 112, 3), 8, 3)
TASKS = {task.name: task for task in (MLP, RESNET50)}
