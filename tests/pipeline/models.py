"""Models of the kinds that are cut into stages, their batches, and labels."""

from typing import Any

import keras
import numpy as np
import tensorflow as tf
from keras import layers

SAMPLES = 10


def numbers(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape).astype("float32")


def mlp() -> keras.Model:
    return keras.Sequential(
        [keras.Input((8,)), *(layers.Dense(16, "tanh") for _ in range(6)), layers.Dense(3)]
    )


def residual() -> keras.Model:
    """Convolutions with batch norm, and skip connections."""
    x = inputs = keras.Input((6, 6, 3))
    for _ in range(3):
        y = layers.Conv2D(4, 3, padding="same")(x)
        y = layers.BatchNormalization()(y)
        y = layers.Activation("relu")(y)
        x = layers.Add()([y, layers.Conv2D(4, 1)(x)])
    return keras.Model(inputs, layers.Dense(3)(layers.GlobalAveragePooling2D()(x)))


def unet() -> keras.Model:
    """What the first layers make goes over all stages to the last ones."""
    inputs = keras.Input((8, 8, 1))
    a = layers.Conv2D(3, 3, padding="same", activation="tanh")(inputs)
    b = layers.Conv2D(4, 3, padding="same", activation="tanh")(layers.AveragePooling2D(2)(a))
    c = layers.Conv2D(5, 3, padding="same", activation="tanh")(layers.AveragePooling2D(2)(b))
    d = layers.Concatenate()([layers.UpSampling2D()(c), b])
    e = layers.Conv2D(4, 3, padding="same", activation="tanh")(d)
    f = layers.Concatenate()([layers.UpSampling2D()(e), a])
    return keras.Model(inputs, layers.Conv2D(1, 1)(f))


def several_inputs_and_outputs() -> keras.Model:
    left, right = keras.Input((8,), name="left"), keras.Input((4,), name="right")
    first = layers.Dense(6, "tanh")(left)
    second = layers.Dense(5, "tanh")(first)
    joined = layers.Concatenate()([second, layers.Dense(4, "tanh")(right)])
    third = layers.Dense(6, "tanh")(joined)
    return keras.Model(
        [left, right], {"early": layers.Dense(2)(first), "late": layers.Dense(3)(third)}
    )


class TiedEmbedding(layers.Embedding):
    """Turns tokens into vectors, and vectors into scores of tokens, with the same weights."""

    def call(self, inputs: Any, reverse: bool = False) -> Any:
        if reverse:
            return keras.ops.matmul(inputs, keras.ops.transpose(self.embeddings))
        return super().call(inputs)

    def compute_output_spec(self, inputs: Any, reverse: bool = False) -> keras.KerasTensor:
        if reverse:
            return keras.KerasTensor((*inputs.shape[:-1], self.input_dim))
        return keras.KerasTensor((*inputs.shape, self.output_dim))


def transformer() -> keras.Model:
    """A block of attention between an embedding and its transpose: tied weights."""
    tokens = keras.Input((6,), dtype="int32")
    embedding = TiedEmbedding(11, 8)
    x = embedding(tokens)
    x = layers.LayerNormalization()(x + layers.MultiHeadAttention(2, 4)(x, x))
    x = layers.LayerNormalization()(x + layers.Dense(8)(layers.Dense(16, "relu")(x)))
    return keras.Model(tokens, embedding(x, reverse=True))


def nested() -> keras.Model:
    """A model in a model, and a layer that is called twice."""
    inner_input = keras.Input((8,))
    inner = keras.Model(
        inner_input, layers.Dense(8, "tanh")(layers.Dense(8, "tanh")(inner_input)), name="inner"
    )
    inputs = keras.Input((8,))
    shared = layers.Dense(8, "tanh")
    return keras.Model(inputs, layers.Dense(3)(shared(inner(shared(inputs)))))


def regularized() -> keras.Model:
    penalty = {"kernel_regularizer": keras.regularizers.L2(0.1)}
    return keras.Sequential(
        [
            keras.Input((8,)),
            layers.Dense(8, "tanh", **penalty),
            layers.Dense(8, activity_regularizer=keras.regularizers.L2(0.05)),
            layers.Dense(8, "tanh", **penalty),
            layers.Dense(3, **penalty),
        ]
    )


MODELS: dict[str, Any] = {
    "mlp": mlp, "residual": residual, "unet": unet,
    "several inputs and outputs": several_inputs_and_outputs, "transformer": transformer,
    "nested": nested, "regularized": regularized,
}  # fmt: skip


def batch_for(model: keras.Model, samples: int = SAMPLES) -> list[np.ndarray]:
    """Inputs of a model, in order."""
    made = []
    for i, x in enumerate(model.inputs):
        shape = (samples, *x.shape[1:])
        if x.dtype == "string":
            words = np.array(["to be", "or not", "to sleep", "or be"])
            made.append(tf.constant(np.random.default_rng(i).choice(words, shape)))
        elif "int" in x.dtype:
            made.append(np.random.default_rng(i).integers(0, 11, shape).astype("int32"))
        else:
            made.append(numbers(*shape, seed=i))
    return made
