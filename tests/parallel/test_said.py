"""The card says what a step has to bring together, and how much that is."""

from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import tnt_notebook as tnt

L = keras.layers


def by_rank_in_batch(y: Any, p: Any) -> Any:
    """Of the batch in order."""
    return tf.reduce_mean(tf.square(tf.sort(p, axis=0) - tf.sort(y, axis=0)))


def said(optimizer: Any, loss: Any, mesh: tnt.Mesh | None) -> str:
    x = keras.Input((8,))
    model = keras.Model(x, L.Dense(4, name="last")(L.Dense(6, name="first")(x)))
    model.compile(keras.optimizers.Lamb() if optimizer == "lamb" else optimizer, loss)
    frames: list[Any] = []
    layouts = mesh and {"first": tnt.Split(columns="model")}
    with tnt.distributed(report=frames.append, mesh=mesh, layouts=layouts):
        model.fit(np.ones((16, 8)), np.ones((16, 4)), batch_size=8, verbose=0)
    return str(frames[-1].get("exchange")) if frames else ""


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        (("sgd", by_rank_in_batch, None), "samples are gathered for "),
        (("lamb", "mse", tnt.Mesh(model=2)), "are made whole ("),
        (("sgd", "mse", tnt.Mesh(model=2)), ""),
    ],
)
def test_what_is_brought_together_is_said(ranks, given, sentence):
    text = ranks.run(2, said, *given)[0]
    assert sentence in text
    assert sentence or ("gathered" not in text and "made whole" not in text)
