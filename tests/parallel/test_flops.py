"""What models ask for, beside what others have counted."""

from __future__ import annotations

import keras
import pytest
from keras import layers

from tnt_notebook.parallel.observe.flops import forward_flops


def test_of_layers_counted_by_hand():
    model = keras.Sequential(
        [
            keras.Input((8, 8, 3)),
            layers.Conv2D(4, 3, padding="same", groups=1),  # 8 8 positions, 3 3 3 4 weights
            layers.DepthwiseConv2D(3),  # 6 6 positions, 3 3 4 weights
            layers.Flatten(),
            layers.Dense(5),  # 144 5
        ]
    )
    assert forward_flops(model) == 2 * (64 * 108 + 36 * 36 + 720)


def test_of_a_sequence_and_of_a_layer_that_is_used_twice():
    shared = layers.Dense(7)
    inputs = keras.Input((10, 7))
    assert forward_flops(keras.Model(inputs, shared(shared(inputs)))) == 2 * 2 * 49 * 10


def test_a_layer_counts_in_the_model_that_is_asked_and_not_in_others():
    model = keras.Sequential([keras.Input((10,))])
    for units in (7, 5, 3):
        model.add(layers.Dense(units))
    keras.Model(model.inputs, model.layers[0](model.inputs))
    assert forward_flops(model) == 2 * (10 * 7 + 7 * 5 + 5 * 3)


@pytest.mark.parametrize(("name", "multiplications"), [("ResNet50", 3.86e9), ("MobileNet", 569e6)])
def test_of_networks_that_papers_have_counted(name, multiplications):
    # He et al. 2016: 3.8e9; Howard et al. 2017: 569e6.
    model = getattr(keras.applications, name)(weights=None)
    assert forward_flops(model) == pytest.approx(2 * multiplications, rel=0.01)


def test_what_is_not_known_is_not_guessed():
    inputs = keras.Input((10, 8))
    attention = layers.MultiHeadAttention(2, 4)(inputs, inputs)
    assert forward_flops(keras.Model(inputs, attention)) is None
    anywhere = keras.Input((None, 8))
    assert forward_flops(keras.Model(anywhere, layers.Dense(3)(anywhere))) is None

    class Own(keras.Model):
        def call(self, x):
            return x

    assert forward_flops(Own()) is None
