"""Networks of the field, small, and what they learn from."""

from collections.abc import Callable, Sequence
from typing import Any

import keras
import numpy as np

from tests.pipeline.models import TiedEmbedding, numbers

L = keras.layers

#: A volume with no even side.
VOLUME = (17, 13, 9)


def mlp() -> keras.Model:
    layers = [L.Dense(12, "relu"), L.Dense(9, "tanh", kernel_regularizer="l2"), L.Dense(3)]
    return keras.Sequential([keras.Input((6,)), *layers])


def vgg() -> keras.Model:
    """Two blocks of convolutions, and dense layers over all that is left."""
    x = inputs = keras.Input((13, 10, 3))
    for filters in 4, 6:
        for _ in range(2):
            x = L.Conv2D(filters, 3, padding="same", activation="relu")(x)
        x = L.MaxPooling2D(2)(x)
    x = L.Dense(10, "relu")(L.Flatten()(x))
    return keras.Model(inputs, L.Dense(3)(x))


def resnet() -> keras.Model:
    """Bottlenecks, the first of each pair at half the resolution; statistics of all samples."""
    x = inputs = keras.Input((15, 11, 3))
    x = _normalized(L.Conv2D(4, 3, padding="same", use_bias=False)(x))
    for filters, strides in (4, 1), (4, 1), (6, 2), (6, 1):
        y = _normalized(L.Conv2D(filters // 2, 1, strides, use_bias=False)(x))
        y = _normalized(L.Conv2D(filters // 2, 3, padding="same", use_bias=False)(y))
        y = L.BatchNormalization(synchronized=True)(L.Conv2D(filters, 1, use_bias=False)(y))
        if x.shape != y.shape:
            x = L.BatchNormalization(synchronized=True)(L.Conv2D(filters, 1, strides)(x))
        x = L.ReLU()(L.Add()([x, y]))
    return keras.Model(inputs, L.Dense(3)(L.GlobalAveragePooling2D()(x)))


def _normalized(x: Any) -> Any:
    return L.ReLU()(L.BatchNormalization(synchronized=True)(x))


def resnet50(frozen: bool) -> keras.Model:
    """That of ``keras.applications``: with statistics that stay, or of all samples."""
    model = keras.applications.ResNet50(weights=None, input_shape=(33, 35, 3), classes=3)

    def own(layer: keras.Layer) -> keras.Layer:
        config = layer.get_config()
        if isinstance(layer, L.BatchNormalization):
            config["synchronized"] = not frozen
        made = type(layer).from_config(config)
        if isinstance(layer, L.BatchNormalization) and frozen:
            made.trainable = False
        return made

    return keras.models.clone_model(model, clone_function=own)


def frozen_resnet50() -> keras.Model:
    return resnet50(frozen=True)


def synchronized_resnet50() -> keras.Model:
    return resnet50(frozen=False)


def unet(filters: Sequence[int] = (3, 4, 5), pooled: bool = False) -> keras.Model:
    """An encoder and a decoder, between which features of each resolution go across. It goes down
    by strides and up by transposed convolutions; or by pooling, of which TensorFlow has none for
    volumes in float64, and by repetition. What comes of windows beyond an odd side is cropped."""
    x = inputs = keras.Input((*VOLUME, 2))
    across = []
    for count in filters[:-1]:
        x = _twice(x, count)
        across.append(x)
        if pooled:
            x = L.MaxPooling3D(2, padding="same")(x)
        else:
            x = L.Conv3D(count, 2, 2, padding="same")(x)
    x = _twice(x, filters[-1])
    for features in reversed(across):
        count = features.shape[-1]
        if pooled:
            x = L.Conv3D(count, 3, padding="same")(L.UpSampling3D(2)(x))
        else:
            x = L.Conv3DTranspose(count, 2, 2)(x)
        over = [(0, a - b) for a, b in zip(x.shape[1:-1], features.shape[1:-1], strict=True)]
        x = L.Cropping3D(over)(x)
        x = _twice(L.Concatenate()([x, features]), count)
    return keras.Model(inputs, L.Conv3D(3, 1, activation="softmax")(x))


def _twice(x: Any, filters: int) -> Any:
    for _ in range(2):
        x = L.Conv3D(filters, 3, padding="same", use_bias=False)(x)
        x = L.LeakyReLU(0.1)(L.BatchNormalization(synchronized=True)(x))
    return x


def pooled_unet() -> keras.Model:
    return unet(pooled=True)


def small_unet() -> keras.Model:
    return unet((2, 3))


class Tied(L.Layer):
    """Scores of tokens by the weights of an embedding, which is another layer."""

    def __init__(self, embedding: keras.Layer, **options: Any) -> None:
        super().__init__(**options)
        self.embedding = embedding

    def call(self, x: Any) -> Any:
        return keras.ops.matmul(x, keras.ops.transpose(self.embedding.embeddings))


def transformer(tied: str) -> keras.Model:
    """Two blocks of attention between an embedding and its transpose, which is made by the
    embedding itself, another layer, or an operation."""
    tokens = keras.Input((7,), dtype="int32")
    embedding = (TiedEmbedding if tied == "itself" else L.Embedding)(11, 8)
    x = embedding(tokens)
    for block in range(2):
        y = L.LayerNormalization()(x)
        x = x + L.MultiHeadAttention(2, 4)(y, y, use_causal_mask=True)
        y = L.Dense(16, "relu", name=f"wide{block}")(L.LayerNormalization()(x))
        x = x + L.Dense(8, name=f"narrow{block}")(y)
    x = L.LayerNormalization()(x)
    if tied == "itself":
        scores = embedding(x, reverse=True)
    elif tied == "layer":
        scores = Tied(embedding)(x)
    else:
        scores = keras.ops.einsum("btd,vd->btv", x, embedding.embeddings)
    return keras.Model(tokens, scores)


def batch(model: keras.Model, samples: int, labels: bool) -> tuple[np.ndarray, np.ndarray]:
    """Inputs and what is to be learned: numbers, or one of as many classes as there are outputs."""
    ((shape, dtype),) = [(x.shape[1:], x.dtype) for x in model.inputs]
    chance = np.random.default_rng(3)
    x = numbers(samples, *shape, seed=1)
    if "int" in dtype:
        x = chance.integers(0, 11, (samples, *shape)).astype("int32")
    *outer, last = model.output_shape[1:]
    if labels:
        return x, chance.integers(0, last, (samples, *outer)).astype("int32")
    return x, numbers(samples, *outer, last, seed=9)


Make = Callable[[], keras.Model]
