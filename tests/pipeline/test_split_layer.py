"""A model says itself where it is to be cut."""

import subprocess
import sys

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers

import tnt_notebook as tnt
from tests.pipeline.training import compare, refused
from tnt_notebook.errors import ModelError
from tnt_notebook.parallel.layer_graph.graph import graph_of, wiring_of
from tnt_notebook.parallel.pipeline.cut import begins_said, described
from tnt_notebook.plan.families import make
from tnt_notebook.plan.partition import partition


def split_here(**options):
    return tnt.keras.layers.SplitLayer(**options)


def chain(*splits: int) -> keras.Model:
    """Six Dense layers; before those with the given numbers there is a SplitLayer."""
    x = inputs = keras.Input((8,))
    for i in range(6):
        if i in splits:
            x = split_here()(x)
        x = layers.Dense(8, "tanh", name=f"dense{i}")(x)
    return keras.Model(inputs, layers.Dense(3, name="last")(x))


def nested() -> keras.Model:
    inner_input = keras.Input((8,))
    y = layers.Dense(8, "tanh", name="before")(inner_input)
    y = layers.Dense(8, "tanh", name="behind")(split_here()(y))
    inner = keras.Model(inner_input, y, name="inner")
    inputs = keras.Input((8,))
    return keras.Model(inputs, layers.Dense(3)(inner(layers.Dense(8)(inputs))))


def branches() -> keras.Model:
    inputs = keras.Input((8,))
    x, skip = layers.Dense(8)(inputs), layers.Dense(4)(inputs)
    x, skip = split_here()(x), split_here()(skip)
    return keras.Model(inputs, layers.Dense(3, name="joined")(layers.Concatenate()([x, skip])))


def first_layers(model, stages, **options):
    """What each stage but the first begins behind its SplitLayer with."""
    graph = graph_of(model)
    begins = begins_said(graph, tnt.Pipeline(stages, **options), make("1f1b", stages, 4))
    names = [call.name for call in graph.calls]
    return None if begins is None else [names[begin + 1] for begin in begins]


def said_of_the_cut(model, stages, *begins, **options):
    graph = graph_of(model)
    cut = partition(wiring_of(graph), begins)
    said = described(graph, tnt.Pipeline(stages, **options), cut)
    return said["cut_by"], said["layers"]


def cuts():
    found = [
        first_layers(chain(2, 4), 3),
        first_layers(nested(), 2),
        first_layers(chain(), 2),
        first_layers(branches(), 2),
        first_layers(chain(2, 4), 2, cut_at=["dense4"]),
        said_of_the_cut(chain(2, 4), 3, 2, 5),
        said_of_the_cut(chain(), 2, 3),
        said_of_the_cut(chain(), 2, 3, cut_at=["dense3"]),
    ]
    errors = []
    for model in (chain(2, 4), chain(0)):
        with pytest.raises(ModelError) as raised:
            first_layers(model, 2)
        errors.append(str(raised.value))
    return found, errors


def test_stages_begin_at_split_layers(ranks):
    ((found, (number, first)),) = ranks.run(1, cuts)
    assert found[:3] == [["dense2", "dense4"], ["behind"], None]
    assert len(found[3]) == 1  # side by side: one cut
    assert found[4] == ["dense5"]  # cut_at is asked first
    parts = [["dense0", "dense1"], ["dense2", "dense3"], ["dense4", "last"]]
    assert found[5] == ("SplitLayer", parts)
    halves = [["dense0", "dense2"], ["dense3", "last"]]
    assert found[6:] == [("times", halves), ("cut_at", halves)]
    assert number == (
        "SplitLayers make 3 parts of the model, and the schedule 1f1b on 2 ranks has 2."
    )
    assert "SplitLayer 'split_layer" in first and "the first layer, so no stage can end" in first


def cut_in_the_middle() -> keras.Model:
    return chain(3)


def cut_twice() -> keras.Model:
    return chain(2, 4)


@pytest.mark.parametrize("make", [cut_in_the_middle, nested])
def test_a_model_that_is_cut_there_trains_as_on_one_process(ranks, make):
    compare(ranks, 2, make, {"stages": 2})


def test_a_wrong_number_of_them_is_said_on_all_ranks(ranks):
    assert set(ranks.run(2, refused, cut_twice, {})) == {
        "SplitLayers make 3 parts of the model, and the schedule 1f1b on 2 ranks has 2."
    }


def identity():
    here = split_here(dtype="mixed_float16")
    x = tf.constant([[1.0, 1e-7]])
    same = here(x)
    pair = here([x, tf.constant([3])])
    tokens = keras.Input((5,), dtype="int32")
    masked = split_here()(layers.Embedding(4, 2, mask_zero=True)(tokens))
    return (
        same.dtype.name,
        np.array_equal(same, x),
        [t.dtype.name for t in pair],
        masked._keras_mask is not None,
    )


def test_it_gives_what_it_takes(ranks):
    assert ranks.run(1, identity) == [("float32", True, ["float32", "int32"], True)]


def test_a_saved_model_is_loaded_in_another_process(ranks, tmp_path):
    file = str(tmp_path / "model.keras")
    (expected,) = ranks.run(1, saved, file)
    code = (
        "import keras, numpy, sys, tnt_notebook.keras\n"
        "model = keras.saving.load_model(sys.argv[1])\n"
        "print(sum(type(layer).__name__ == 'SplitLayer' for layer in model.layers))\n"
        "print(float(model.predict(numpy.ones((1, 8)), verbose=0).sum()))"
    )
    shown = subprocess.check_output([sys.executable, "-c", code, file], text=True).split()
    assert shown[0] == "2" and float(shown[1]) == pytest.approx(expected, rel=1e-5)


def saved(file):
    model = chain(2, 4)
    model.save(file)
    return float(model.predict(np.ones((1, 8)), verbose=0).sum())
