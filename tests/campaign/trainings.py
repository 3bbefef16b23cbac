"""What trains while faults happen: models, strategies, and what a fit is to do when ranks die."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

MODELS = {
    "dense": """
x = chance.normal(size=(240, 8)).astype("float32")
y = x.sum(1, keepdims=True)
model = keras.Sequential([
    keras.Input((8,)), *(keras.layers.Dense(24, activation="tanh") for _ in range(3)),
    keras.layers.Dense(1),
])
model.compile("adam", "mse", metrics=["mae"])
""",
    "images": """
x = chance.normal(size=(120, 12, 12, 3)).astype("float32")
y = chance.integers(0, 5, 120)
inputs = keras.Input((12, 12, 3))
h = keras.layers.Conv2D(8, 3, padding="same", activation="relu")(inputs)
h = keras.layers.Add()([h, keras.layers.Conv2D(8, 3, padding="same", activation="relu")(h)])
h = keras.layers.GlobalAveragePooling2D()(h)
model = keras.Model(inputs, keras.layers.Dense(5, activation="softmax")(h))
model.compile(keras.optimizers.SGD(0.1, momentum=0.9), "sparse_categorical_crossentropy",
              metrics=["accuracy"])
""",
    "words": """
x = chance.integers(0, 50, (160, 7))
y = (x.sum(1) % 2).astype("float32")
model = keras.Sequential([
    keras.Input((7,), dtype="int64"), keras.layers.Embedding(50, 12),
    keras.layers.GlobalAveragePooling1D(), keras.layers.Dense(10, activation="tanh"),
    keras.layers.Dense(1, activation="sigmoid"),
])
model.compile("rmsprop", "binary_crossentropy", metrics=["accuracy"])
""",
}

#: Seconds after which a rank that is waited for is taken to be stuck: ranks may trace for long.
TIMEOUT_S = 20

#: Options of the fit, and of how many ranks it needs a multiple.
STRATEGIES = {
    "": 1,
    "--bucket-mb 0.002": 1,
    "--pipeline 2 --micro-batches 4": 2,
    "--pipeline 2 --micro-batches 4 --schedule zb-h1": 2,
    "--pipeline 3 --micro-batches 3 --schedule gpipe": 3,
}

#: Graphs of a few steps are not worth optimizing.
CELL = """%%tnt_fit {options}
import keras, numpy as np, os, signal, sys, tensorflow as tf, threading, time
tf.config.optimizer.set_experimental_options({{"disable_meta_optimizer": True}})
from tnt_notebook import comm
keras.utils.set_random_seed(7)
chance = np.random.default_rng(7)
{model}
class Pace(keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        time.sleep(0.03)
held_out = x[:37], y[:37]
timer = None
{trap}
model.fit(x, y, batch_size=30, epochs=4, validation_data=held_out, callbacks=[Pace()])
if timer: timer.cancel()
"""


@dataclass(frozen=True)
class Training:
    """One way to train one model.

    Attributes:
        model: one of :data:`MODELS`.
        strategy: one of :data:`STRATEGIES`.
        on_failure: what the fit does when ranks die: stop, shrink or restart.
        ranks: of the cluster.
    """

    model: str
    strategy: str
    on_failure: str
    ranks: int

    def options(self, folder: str) -> str:
        """With a folder for checkpoints, where something is to happen; without one, where not."""
        words = [self.strategy, f"--timeout {TIMEOUT_S}" if folder else ""]
        if self.on_failure != "stop":
            words.append(f"--on-failure {self.on_failure} --restarts 2")
            words.append(f"--checkpoint {folder} --every 0.2")
        return " ".join(words)

    def cell(self, folder: str, trap: str = "") -> str:
        model = MODELS[self.model]
        return CELL.format(options=self.options(folder), model=model, trap=trap)

    @property
    def undisturbed(self) -> Training:
        """The training whose weights this one is to end with, when nothing happens."""
        return Training(self.model, self.strategy, "stop", self.ranks)


def drawn(chance: Random, ranks: int) -> Training:
    """A training for so many ranks."""
    possible = [s for s, stages in STRATEGIES.items() if ranks >= stages and ranks % stages == 0]
    strategy = chance.choice(possible)
    # A pipeline cannot go on with fewer ranks than its stages.
    shrinks = [] if strategy.startswith("--pipeline") else ["shrink"]
    kinds = ["stop", "restart", *shrinks]

    return Training(chance.choice(list(MODELS)), strategy, chance.choice(kinds), ranks)
