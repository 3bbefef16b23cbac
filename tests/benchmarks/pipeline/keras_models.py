"""The tasks in Keras."""

import keras
from keras import layers

from tests.benchmarks.pipeline.tasks import DENSE, FUNNEL, RESNET50, Task


def built(task: Task) -> keras.Model:
    """The model, compiled. Without XLA: it is slower on CPUs, and pipelines leave it out."""
    keras.utils.set_random_seed(1)
    if task is DENSE:
        dense = [layers.Dense(1024, "relu", name=f"dense_{i}") for i in range(8)]
        model = keras.Sequential([keras.Input(task.shape), *dense])
    elif task is RESNET50:
        model = keras.applications.ResNet50(
            weights=None, input_shape=task.shape, classes=10, classifier_activation=None
        )
    elif task is FUNNEL:
        model = _funnel(task.shape)
    else:
        model = _transformer(*task.shape)
    model.compile(keras.optimizers.SGD(0.01), "mse", jit_compile=False)
    return model


def _transformer(length: int, width: int, blocks: int = 8, heads: int = 4) -> keras.Model:
    """Encoder blocks that normalise first (Xiong et al. 2020, On Layer Normalization)."""
    x = inputs = keras.Input((length, width))
    for _ in range(blocks):
        y = layers.LayerNormalization()(x)
        x = layers.Add()([x, layers.MultiHeadAttention(heads, width // heads)(y, y)])
        y = layers.LayerNormalization()(x)
        y = layers.Dense(4 * width, "relu")(y)
        x = layers.Add()([x, layers.Dense(width)(y)])
    return keras.Model(inputs, x)


def _funnel(shape: tuple[int, ...]) -> keras.Model:
    """Few large values and little work per weight at one end, the contrary at the other."""
    x = inputs = keras.Input(shape)
    for filters in (24, 48, 96):
        for strides, what in ((1, "same"), (2, "half")):
            name = f"{what}_{filters}"
            x = layers.Conv2D(filters, 3, strides, "same", activation="relu", name=name)(x)
    x = layers.Dense(512, "relu", name="dense")(layers.Flatten(name="flat")(x))
    return keras.Model(inputs, layers.Dense(10, name="scores")(x))
