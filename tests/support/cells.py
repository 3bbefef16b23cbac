"""Cells of Keras code, as a person writes them."""

#: Trains; with ``{epochs}``.
TRAIN = """
import keras, numpy as np
keras.utils.set_random_seed(1)
x = np.random.default_rng(0).normal(size=(256, 4)).astype("float32")
model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
model.compile("sgd", "mse")
model.fit(x, x.sum(1, keepdims=True), batch_size=32, epochs={epochs})
"""
