"""ResNet-50: a network that tells what is in pictures, from folders of them, one folder a class.

That of He et al., "Deep Residual Learning for Image Recognition" (2015, arXiv:1512.03385), with
the stride in its 3 x 3 convolutions, as all use it now; trained as ImageNet is: a learning rate
for large batches (Goyal et al., 2017, arXiv:1706.02677), cosine, smoothed labels (Xie et al., "Bag
of Tricks", 2018, arXiv:1812.01187), mixed precision.

    mpiexec -n 8 python resnet50.py --data imagenet/train --validation imagenet/val
    sbatch --nodes 4 --ntasks-per-node 4 --gpus-per-node 4 train.sbatch resnet50.py --data ...

`draw` makes folders of textures, to try it on; so does `--draw` with the samples of each class.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf
from keras import layers

TEXTURES = ("checks", "rings", "spots", "stripes")
ENDS = (".jpeg", ".jpg", ".png")


def texture(kind: str, pixels: int, chance: np.random.Generator) -> np.ndarray:
    """A picture of a texture in two colours, at any scale and angle, under uneven light.

    Args:
        kind: one of `TEXTURES`.
        pixels: along a side.

    Returns:
        (pixels, pixels, 3), uint8.
    """
    y, x = np.mgrid[:pixels, :pixels] / pixels - 0.5
    angle, waves = chance.uniform(0, np.pi), 2 * np.pi * chance.uniform(3, 6)
    u = np.cos(angle) * x + np.sin(angle) * y + chance.uniform()
    v = np.cos(angle) * y - np.sin(angle) * x + chance.uniform()
    if kind == "stripes":
        pattern = np.sin(waves * u)
    elif kind == "checks":
        pattern = np.sin(waves * u) * np.sin(waves * v) * 2
    elif kind == "rings":
        from_x, from_y = chance.uniform(-0.3, 0.3, 2)
        pattern = np.sin(waves * np.hypot(x - from_x, y - from_y))
    else:
        at = chance.uniform(-0.5, 0.5, (2, int(waves), 1, 1))
        near = np.hypot(x - at[0], y - at[1]).min(0)
        pattern = 6 * (0.06 - near) / 0.06
    share = 1 / (1 + np.exp(-4 * pattern))[..., None]
    dark, bright = chance.uniform(0, 120, 3), chance.uniform(120, 255, 3)
    light = 1 + 0.6 * (chance.uniform(-1, 1) * x + chance.uniform(-1, 1) * y)[..., None]
    picture = (dark + (bright - dark) * share) * light + chance.normal(0, 8, (pixels, pixels, 3))
    return np.clip(picture, 0, 255).astype("uint8")


def draw(folder: Path, each: int, pixels: int, seed: int) -> None:
    """Writes textures as JPEG: `folder/stripes/0007.jpeg`.

    Args:
        folder: to be made; one that is there stays as it is.
        each: how many of each kind.
        pixels: along a side.
        seed: the same pictures for the same seed.
    """
    if folder.exists():
        return
    chance = np.random.default_rng(seed)
    beside = folder.with_name(f"{folder.name}.part")  # what is there is whole
    for kind in TEXTURES:
        (beside / kind).mkdir(parents=True, exist_ok=True)
        for n in range(each):
            picture = tf.io.encode_jpeg(texture(kind, pixels, chance), quality=95)
            (beside / kind / f"{n:04}.jpeg").write_bytes(picture.numpy())
    beside.rename(folder)


def listed(folder: Path) -> tuple[list[str], list[int], list[str]]:
    """The pictures in folders, a folder a class.

    Returns:
        Paths of files, the number of the class of each, and the names of classes; in the order of
        the alphabet, so that it is the same on all ranks.

    Raises:
        FileNotFoundError: there are none.
    """
    classes = sorted(one.name for one in folder.iterdir() if one.is_dir())
    found = [
        (str(file), number)
        for number, name in enumerate(classes)
        for file in sorted((folder / name).iterdir())
        if file.suffix.lower() in ENDS
    ]
    if not found:
        raise FileNotFoundError(f"{folder} has no folders with pictures ({', '.join(ENDS)})")
    files, labels = zip(*found, strict=True)
    return list(files), list(labels), classes


def pictures(
    folder: Path, pixels: int, batch_size: int, augmented: bool, least: float = 0.08
) -> tf.data.Dataset:
    """Batches of the pictures in folders, each made by the rank that trains on it.

    Args:
        folder: of folders, one a class.
        pixels: along a side, as the network sees them.
        batch_size: of the global batch.
        augmented: in another order in every epoch, of each picture another part, flipped every
            other time. What is drawn comes with each picture, so it is the same on any number of
            ranks. Without: the middle of the picture.
        least: of the area of a picture that such a part has.

    Returns:
        Pictures (batch, pixels, pixels, 3), float32 from 0 to 255, and classes (batch, classes),
        float32: 1 for the right one.
    """
    files, labels, classes = listed(folder)

    def read(file: tf.Tensor) -> tf.Tensor:
        return tf.io.decode_jpeg(tf.io.read_file(file), channels=3)

    def middle(file: tf.Tensor, label: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        picture = tf.image.central_crop(read(file), 0.875)
        return resized(picture), tf.one_hot(label, len(classes))

    def another(
        sample: tuple[tf.Tensor, tf.Tensor], drawn: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor]:
        picture = read(sample[0])
        begin, size, _ = tf.image.stateless_sample_distorted_bounding_box(
            tf.shape(picture), tf.zeros((1, 0, 4)), drawn, 0.1,
            aspect_ratio_range=(3 / 4, 4 / 3), area_range=(least, 1),
            use_image_if_no_bounding_boxes=True,
        )  # fmt: skip
        picture = tf.image.stateless_random_flip_left_right(tf.slice(picture, begin, size), drawn)
        return resized(picture), tf.one_hot(sample[1], len(classes))

    def resized(picture: tf.Tensor) -> tf.Tensor:
        return tf.ensure_shape(tf.image.resize(picture, (pixels, pixels)), (pixels, pixels, 3))

    samples = tf.data.Dataset.from_tensor_slices((files, labels))
    if augmented:
        samples = samples.shuffle(len(files), seed=1)
        drawn = tf.data.Dataset.random(seed=2, rerandomize_each_iteration=True).batch(2)
        samples = tf.data.Dataset.zip(samples, drawn).map(another, tf.data.AUTOTUNE)
    else:
        samples = samples.map(middle, tf.data.AUTOTUNE)
    return samples.batch(batch_size).prefetch(tf.data.AUTOTUNE)


def resnet(
    classes: int,
    filters: int = 64,
    blocks: Sequence[int] = (3, 4, 6, 3),
    norm_of_all: bool = True,
) -> keras.Model:
    """The network, of pictures of any size; as it is given here, ResNet-50.

    Args:
        classes: how many there are.
        filters: of the first convolution.
        blocks: of each stage; each stage but the first halves the pixels along a side.
        norm_of_all: batch normalization sees the batch of all ranks, not of one alone.
    """

    def convolution(x: tf.Tensor, filters: int, size: int, stride: int = 1, gain: str = "ones"):
        x = layers.Conv2D(
            filters, size, stride, padding="same", use_bias=False, kernel_initializer="he_normal"
        )(x)
        return layers.BatchNormalization(
            momentum=0.9, epsilon=1e-5, gamma_initializer=gain, synchronized=norm_of_all
        )(x)

    seen = keras.Input((None, None, 3))
    x = layers.Rescaling(1 / 127.5, -1)(seen)
    x = layers.ReLU()(convolution(x, filters, 7, 2))
    x = layers.MaxPooling2D(3, 2, padding="same")(x)
    for stage, count in enumerate(blocks):
        width = filters << stage
        for block in range(count):
            stride = 2 if stage and not block else 1
            y = layers.ReLU()(convolution(x, width, 1))
            y = layers.ReLU()(convolution(y, width, 3, stride))
            y = convolution(y, 4 * width, 1, gain="zeros")  # a block begins as if it was not there
            if not block:
                x = convolution(x, 4 * width, 1, stride)
            x = layers.ReLU()(x + y)
    x = layers.GlobalAveragePooling2D()(x)
    return keras.Model(seen, layers.Dense(classes, dtype="float32")(x))


def main(arguments: Sequence[str] | None = None) -> dict[str, list[float]]:
    """Trains on all ranks that were started, and saves the model.

    Args:
        arguments: of the command line.

    Returns:
        Loss and accuracy by epoch.
    """
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    folder = {"metavar": "FOLDER", "type": Path}
    parser.add_argument("--data", **folder, required=True, help="of folders, one a class")
    parser.add_argument("--validation", **folder, help="the same, not to train on")
    parser.add_argument(
        "--draw", type=int, metavar="N", help="textures of each kind, where --data is not there"
    )
    parser.add_argument("--pixels", type=int, default=224, help="along a side of a picture")
    parser.add_argument("--filters", type=int, default=64, help="of the first convolution")
    parser.add_argument("--blocks", default="3,4,6,3", help="of each stage: ResNet-50")
    parser.add_argument(
        "--norm", choices=("all", "rank"), default="rank",
        help="whose samples batch normalization sees: those of all, as on one process, or its own",
    )  # fmt: skip
    parser.add_argument("--precision", default="mixed_float16", help="mixed_bfloat16, float32, ...")
    parser.add_argument("--batch-size", type=int, default=256, help="of all ranks together")
    parser.add_argument("--epochs", type=int, default=90)
    parser.add_argument("--warm-up", type=int, default=5, help="epochs of a growing learning rate")
    parser.add_argument("--rate", type=float, default=0.1, help="of learning, of 256 samples")
    parser.add_argument("--checkpoint", metavar="FOLDER", help="kept there; it goes on from it")
    parser.add_argument("--save", metavar="FILE", default="resnet50.keras", help="the model")
    given = parser.parse_args(arguments)

    import tnt_notebook as tnt
    from tnt_notebook.keras.large_batch import WarmUp, scaled_rate

    keras.utils.set_random_seed(1)
    keras.config.set_dtype_policy(given.precision)
    if given.draw and tnt.world().rank == 0:
        draw(given.data, given.draw, given.pixels, seed=1)
        if given.validation:
            draw(given.validation, 1 + given.draw // 5, given.pixels, seed=2)
    tnt.world().barrier()
    training = pictures(given.data, given.pixels, given.batch_size, augmented=True)
    validation = given.validation and pictures(
        given.validation, given.pixels, given.batch_size, augmented=False
    )
    classes = training.element_spec[1].shape[-1]
    blocks = [int(count) for count in given.blocks.split(",")]
    model = resnet(classes, given.filters, blocks, norm_of_all=given.norm == "all")

    steps, before = (epochs * len(training) for epochs in (given.epochs, given.warm_up))
    rate = keras.optimizers.schedules.CosineDecay(
        scaled_rate(given.rate, given.batch_size), max(1, steps - before)
    )
    if before:
        rate = WarmUp(rate, before)
    optimizer = keras.optimizers.SGD(rate, momentum=0.9, nesterov=True, weight_decay=5e-5)
    optimizer.exclude_from_weight_decay(var_names=["gamma", "beta", "bias"])
    checkpoint = tnt.Checkpoint(given.checkpoint) if given.checkpoint else None
    model = tnt.Model(model, checkpoint=checkpoint)
    model.compile(  # with a mixed_float16 policy Keras scales the loss
        optimizer,
        keras.losses.CategoricalCrossentropy(from_logits=True, label_smoothing=0.1),
        metrics=["accuracy"],
    )
    history = model.fit(
        training, epochs=given.epochs, validation_data=validation, shuffle=False, verbose=2
    )
    if tnt.world().rank == 0:
        model.save(given.save)
    return history.history


if __name__ == "__main__":
    main()
