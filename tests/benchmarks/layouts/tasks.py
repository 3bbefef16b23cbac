"""What is trained in layouts, as data, and the halos that are exchanged alone; inputs are noise."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Task:
    """One model, and how it is divided.

    Attributes:
        shape: of a sample.
        batch: samples of a step, whatever the number of ranks.
        axis: of the mesh, along which its layers are divided.
        steps: in a turn of a contestant.
        layers: makes what is between input and output, with the Keras that it is given.
        layouts: how layers are divided, by name: the arguments of `tnt.Split`; none: as the axis
            says.
    """

    title: str
    shape: tuple[int, ...]
    batch: int
    axis: str
    steps: int
    layers: Callable[[Any, Any], Any]
    layouts: tuple[tuple[str, str], ...] = ()

    def model(self, keras: Any) -> Any:
        keras.utils.set_random_seed(1)
        x = keras.Input(self.shape)
        model = keras.Model(x, self.layers(keras.layers, x))
        model.compile(keras.optimizers.SGD(0.001), "mse", jit_compile=False)
        return model

    def samples(self, outputs: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
        random, count = np.random.default_rng(0), self.steps * self.batch
        x, y = (random.standard_normal((count, *s), np.float32) for s in (self.shape, outputs))
        return x, y


def unet(layers: Any, x: Any, widths: tuple[int, ...] = (16, 32, 64)) -> Any:
    """Two convolutions a level, down and up again, with skips (Cicek et al., MICCAI 2016)."""
    skips = []
    for width in widths[:-1]:
        x = _twice(layers, x, width)
        skips.append(x)
        x = layers.MaxPooling3D(2)(x)
    x = _twice(layers, x, widths[-1])
    for width, skip in zip(reversed(widths[:-1]), reversed(skips), strict=True):
        x = layers.Conv3DTranspose(width, 2, strides=2)(x)
        x = _twice(layers, layers.Concatenate()([x, skip]), width)
    return layers.Conv3D(1, 1)(x)


def _twice(layers: Any, x: Any, width: int) -> Any:
    for _ in range(2):
        x = layers.Conv3D(width, 3, padding="same", activation="relu")(x)
    return x


def vgg(layers: Any, x: Any) -> Any:
    """Convolutions, and a pooling after two of them; a score for each class."""
    for width in (32, 64, 128):
        for _ in range(2):
            x = layers.Conv2D(width, 3, padding="same", activation="relu")(x)
        x = layers.MaxPooling2D(2)(x)
    return layers.Dense(10)(layers.GlobalAveragePooling2D()(x))


#: Of the stack that torch has, too.
STACK_DEPTH, STACK_WIDTH = 8, 32


def stack(layers: Any, x: Any) -> Any:
    """Convolutions of one width."""
    for _ in range(STACK_DEPTH):
        x = layers.Conv2D(STACK_WIDTH, 3, padding="same", activation="relu")(x)
    return x


def dense_pair(layers: Any, x: Any) -> Any:
    x = layers.Dense(4096, "relu", name="first")(x)
    return layers.Dense(4096, name="second")(x)


TASKS = {
    "unet32": Task("3D U-Net, one volume of 32^3", (32, 32, 32, 1), 1, "depth", 6, unet),
    "unet64": Task("3D U-Net, one volume of 64^3", (64, 64, 64, 1), 1, "depth", 2, unet),
    "vgg": Task("VGG-like CNN, one image of 160^2", (160, 160, 3), 1, "height", 8, vgg),
    "dense": Task(
        "Dense 4096 x 4096, columns and rows, 256 samples", (4096,), 256, "model", 3, dense_pair,
        (("first", "columns"), ("second", "rows")),
    ),
    "stack": Task(
        f"{STACK_DEPTH} x Conv2D({STACK_WIDTH}, 3), one image of 160^2",
        (160, 160, STACK_WIDTH), 1, "height", 4, stack,
    ),
}  # fmt: skip


@dataclass(frozen=True)
class Halo:
    """A block of an array that is divided along dimension 1, and rows at each of its edges that
    the ranks beside it need."""

    title: str
    block: tuple[int, ...]
    rows: int = 1


HALOS = {
    "image": Halo("an image of 160^2 x 32 channels in height", (1, 80, 160, 32)),
    "volume": Halo("a volume of 64^3 x 16 channels in depth", (1, 32, 64, 64, 16)),
    "small": Halo("an image of 40^2 x 16 channels in height", (1, 20, 40, 16)),
}
