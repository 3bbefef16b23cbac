"""What is trained, as data; inputs are noise."""

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

    title: str
    shape: tuple[int, ...]
    outputs: tuple[int, ...]
    rows: int
    steps: int

    def batch(self, micro_batches: int) -> tuple[np.ndarray, np.ndarray]:
        random = np.random.default_rng(0)
        shapes = ((self.rows * micro_batches, *shape) for shape in (self.shape, self.outputs))
        x, y = (random.standard_normal(shape, np.float32) for shape in shapes)
        return x, y


DENSE = Task("8 x Dense(1024), 512 samples a micro-batch", (1024,), (1024,), 512, 2)
RESNET50 = Task("ResNet-50, 8 images of 112x112 a micro-batch", (112, 112, 3), (10,), 8, 1)
_SEQUENCE = "Transformer of 8 blocks, 8 sequences of 128 x 256 a micro-batch"
TRANSFORMER = Task(_SEQUENCE, (128, 256), (128, 256), 8, 2)
#: What a cut has to look at: layers that differ, in work and in what they give.
FUNNEL = Task("9 layers from 48x48x3 to 10, 16 images a micro-batch", (48, 48, 3), (10,), 16, 2)

#: Where torch has the same layers.
WITH_TORCH = {"dense": DENSE, "resnet50": RESNET50, "transformer": TRANSFORMER}
TASKS = {**WITH_TORCH, "funnel": FUNNEL}
