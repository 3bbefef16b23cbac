"""The graph of a Keras model as a list of calls."""

import keras
import pytest
from keras import layers

from tests.pipeline.models import nested
from tnt_notebook.errors import ModelError
from tnt_notebook.parallel.layer_graph.graph import graph_of


def test_nested_models_are_opened_up():
    names = [call.name for call in graph_of(nested()).calls]
    assert len(names) == 5 and len(set(names)) == 4 and "inner" not in names


class Own(keras.Model):
    def call(self, x):
        return x


@pytest.mark.parametrize(
    ("model", "words"),
    [
        (Own(name="own"), "Own 'own' cannot be cut.*functional interface"),
        (keras.Sequential([layers.Dense(3)], name="unbuilt"), "begins with a keras.Input"),
    ],
)
def test_a_model_without_a_graph_is_refused_with_advice(model, words):
    with pytest.raises(ModelError, match=words):
        graph_of(model)
