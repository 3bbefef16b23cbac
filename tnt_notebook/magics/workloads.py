"""Cells to measure where there is none at hand: ordinary Keras code, on data drawn by chance.

They are as large as their kind commonly is, and of the same names as the tutorials' scripts, which
train them on data that mean something.
"""

from __future__ import annotations

MLP = """\
import keras
import numpy as np

keras.utils.set_random_seed(1)
chance = np.random.default_rng(1)
x = chance.random((16384, 784), "float32")
y = chance.integers(0, 10, len(x))

model = keras.Sequential([
    keras.Input((784,)),
    keras.layers.Dense(512, activation="relu"),
    keras.layers.Dense(512, activation="relu"),
    keras.layers.Dense(10, activation="softmax"),
])
model.compile("adam", "sparse_categorical_crossentropy")
model.fit(x, y, batch_size=256, epochs=2)
"""

HEP_CNN = """\
import keras
import numpy as np

keras.utils.set_random_seed(1)
chance = np.random.default_rng(1)
images = chance.random((2048, 64, 64, 3), "float32")
labels = chance.integers(0, 2, len(images))

model = keras.Sequential([keras.Input(images.shape[1:])])
for _ in range(4):
    model.add(keras.layers.Conv2D(128, 3, padding="same", activation="relu"))
    model.add(keras.layers.MaxPooling2D())
model.add(keras.layers.Conv2D(128, 3, padding="same", activation="relu"))
model.add(keras.layers.GlobalAveragePooling2D())
model.add(keras.layers.Dense(2, activation="softmax"))
model.compile(keras.optimizers.Adam(1e-3), "sparse_categorical_crossentropy")
model.fit(images, labels, batch_size=64, epochs=1)
"""

TRANSFORMER = """\
import keras
import numpy as np
from keras import layers

keras.utils.set_random_seed(1)
length, words, width = 128, 4096, 256
text = np.random.default_rng(1).integers(0, words, (2048, length + 1))

inputs = keras.Input((length,), dtype="int32")
x = layers.Embedding(words, width)(inputs) + layers.Embedding(length, width)(np.arange(length))
for _ in range(4):
    y = layers.LayerNormalization()(x)
    x = x + layers.MultiHeadAttention(8, width // 8)(y, y, use_causal_mask=True)
    y = layers.LayerNormalization()(x)
    x = x + layers.Dense(width)(layers.Dense(4 * width, activation="gelu")(y))
outputs = layers.Dense(words)(layers.LayerNormalization()(x))
model = keras.Model(inputs, outputs)
loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
model.compile(keras.optimizers.AdamW(3e-4), loss)
model.fit(text[:, :-1], text[:, 1:], batch_size=32, epochs=1)
"""

CELLS = {"mlp": MLP, "hep_cnn": HEP_CNN, "language_model": TRANSFORMER}
