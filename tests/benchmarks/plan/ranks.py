"""What ranks do: they say what to expect of a way to train a model, and train it so."""

import gc
import math
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from keras import layers

import tnt_notebook as tnt
from tnt_notebook import comm
from tnt_notebook.errors import ModelError
from tnt_notebook.parallel.layer_graph.survey import surveyed
from tnt_notebook.parallel.layers.link import measured_link
from tnt_notebook.parallel.pipeline.predict import Planner
from tnt_notebook.parallel.training.overheads import overheads_of
from tnt_notebook.parallel.training.scope import call
from tnt_notebook.plan.best import Way
from tnt_notebook.plan.fit_options import FitOptions
from tnt_notebook.plan.network import ASSUMED
from tnt_notebook.plan.outlook import Outlook
from tnt_notebook.plan.promise import options_of

CLASSES = 10


def mlp() -> keras.Model:
    return _stack((256,), *(layers.Dense(512, "relu") for _ in range(4)))


def small_layers() -> keras.Model:
    """Sixteen, which take less than TensorFlow needs to begin them."""
    return _stack((64,), *(layers.Dense(64, "relu") for _ in range(16)))


def cnn() -> keras.Model:
    blocks: list[keras.Layer] = []
    for filters in (16, 32, 64):
        blocks += [layers.Conv2D(filters, 3, padding="same", activation="relu")]
        blocks += [layers.BatchNormalization(), layers.MaxPooling2D()]
    return _stack((32, 32, 3), *blocks, layers.Flatten())


def transformer() -> keras.Model:
    values = inputs = keras.Input((32, 64))
    for _ in range(3):
        seen = layers.MultiHeadAttention(4, 16)(values, values)
        values = layers.LayerNormalization()(layers.Add()([values, seen]))
        hidden = layers.Dense(64)(layers.Dense(256, "relu")(values))
        values = layers.LayerNormalization()(layers.Add()([values, hidden]))
    scores = layers.Dense(CLASSES)(layers.GlobalAveragePooling1D()(values))
    return keras.Model(inputs, scores)


def lstm() -> keras.Model:
    return _stack((24, 32), layers.LSTM(64, return_sequences=True), layers.LSTM(64))


def u_net() -> keras.Model:
    inputs = keras.Input((32, 32, 3))
    fine = _conv(16)(inputs)
    coarse = _conv(32)(layers.MaxPooling2D()(fine))
    lowest = _conv(64)(layers.MaxPooling2D()(coarse))
    values = layers.Concatenate()([layers.UpSampling2D()(lowest), coarse])
    values = layers.Concatenate()([layers.UpSampling2D()(_conv(32)(values)), fine])
    scores = layers.Dense(CLASSES)(layers.GlobalAveragePooling2D()(_conv(16)(values)))
    return keras.Model(inputs, scores)


MODELS: dict[str, Callable[[], keras.Model]] = {
    make.__name__: make for make in (mlp, small_layers, cnn, transformer, lstm, u_net)
}


def expected(name: str, batch_size: int, ways: list[Way]) -> list[float]:
    """Seconds of a step, each; not a number where the model cannot be trained so."""
    over = comm.world()
    link, model = measured_link(over), _compiled(name)
    overheads = overheads_of(over, model, surveyed(model), -(-batch_size // over.size), call)
    found = np.zeros(len(ways))
    if over.rank == 0:
        outlook = Planner(model, batch_size, over.size, overheads=overheads).outlook(link)
        found = np.array([_step_s(outlook, way) for way in ways])
    return over.broadcast(found).tolist()


def _step_s(outlook: Outlook, way: Way) -> float:
    try:
        return outlook.plan(way).step_s
    except ModelError:
        return math.nan


def trained(name: str, batch_size: int, way: Way, steps: int) -> float:
    """Seconds of the median step of a fit; on rank 0."""
    model = _compiled(name)
    shape = model.input_shape[1:]
    x = np.random.default_rng(0).random((steps * batch_size, *shape), np.float32)
    frames: list[Any] = []
    made = FitOptions.of(options_of(way))
    how = {"pipeline": made.pipeline, "mesh": made.mesh, "exchange": made.exchange}
    with tnt.distributed(report=frames.append, **how):
        model.fit(x, np.arange(len(x)) % CLASSES, batch_size=batch_size, epochs=2, verbose=0)
    return frames[-1]["step_s"] if frames else 0.0


def memory_of(name: str, batch_size: int, ways: list[Way]) -> list[int]:
    """Bytes that the rank needs which needs most, each; 0 where the model cannot be trained so. On
    rank 0."""
    over = comm.world()
    found = [0] * len(ways)
    if over.rank == 0:
        outlook = Planner(_compiled(name), batch_size, over.size).outlook(ASSUMED)
        found = [_bytes(outlook, way) for way in ways]
    over.barrier()
    return found


def _bytes(outlook: Outlook, way: Way) -> int:
    try:
        return max(outlook.plan(way).rank_bytes)
    except ModelError:
        return 0


def needed(name: str, batch_size: int, way: Way) -> int:
    """The most bytes of tensors that this rank has had at a time while it trained."""
    shape = MODELS[name]().input_shape[1:]
    batch = tf.zeros((batch_size, *shape)), tf.zeros(batch_size, tf.int64)
    data = tf.data.Dataset.from_tensors(batch).repeat(4)
    gc.collect()
    before = tf.config.experimental.get_memory_info("CPU:0")["current"]
    tf.config.experimental.reset_memory_stats("CPU:0")
    made = FitOptions.of(options_of(way))
    with tnt.distributed(pipeline=made.pipeline, mesh=made.mesh, exchange=made.exchange):
        with tnt.lazy():
            model = _compiled(name)
        model.fit(data, epochs=1, verbose=0)
    return int(tf.config.experimental.get_memory_info("CPU:0")["peak"] - before)


def _compiled(name: str) -> keras.Model:
    keras.utils.set_random_seed(1)
    model = MODELS[name]()
    model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    return model


def _stack(shape: tuple[int, ...], *hidden: keras.Layer) -> keras.Model:
    return keras.Sequential([keras.Input(shape), *hidden, layers.Dense(CLASSES)])


def _conv(filters: int) -> keras.Layer:
    return layers.Conv2D(filters, 3, padding="same", activation="relu")
