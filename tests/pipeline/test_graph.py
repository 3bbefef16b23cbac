"""The graph of a Keras model as a list of calls: run one by one they are the model."""

from __future__ import annotations

import keras
import numpy as np
import pytest
from keras import layers

from tests.pipeline.models import MODELS, batch_for
from tnt_notebook.errors import ModelError
from tnt_notebook.parallel.pipeline.graph import graph_of, wiring_of


def both(name):
    keras.utils.set_random_seed(1)
    model = MODELS[name]()
    inputs = batch_for(model)
    graph = graph_of(model)
    values = dict(zip(graph.inputs, inputs, strict=True))
    for call in graph.calls:
        call.run(values, training=False)
    ours = keras.tree.map_structure(lambda n: values[n], graph.output_structure)
    theirs = model(inputs if len(inputs) > 1 else inputs[0], training=False)
    keras.tree.map_structure(
        lambda a, b: np.testing.assert_allclose(a, b, 1e-5, 1e-6), ours, theirs
    )
    assert all(
        tuple(values[n].shape[1:]) == tuple(spec.shape[1:])
        for n, spec in enumerate(graph.specs)
        if len(spec.shape)
    )
    return [call.name for call in graph.calls], wiring_of(graph)


@pytest.mark.parametrize("name", MODELS)
def test_the_calls_one_by_one_are_the_model(ranks, name):
    (_, here), (_, there) = ranks.run(2, both, name)
    assert here == there  # the same numbers on all ranks


def test_nested_models_are_opened_up(ranks):
    ((names, _),) = ranks.run(1, both, "nested")
    assert len(names) == 5 and len(set(names)) == 4 and "inner" not in names


def refused():
    class Own(keras.Model):
        def call(self, x):
            return x

    texts = []
    for model in (Own(name="own"), keras.Sequential([layers.Dense(3)], name="unbuilt")):
        with pytest.raises(ModelError) as raised:
            graph_of(model)
        texts.append(str(raised.value))
    return texts


def test_a_model_without_a_graph_is_refused_with_advice(ranks):
    ((own, unbuilt),) = ranks.run(1, refused)
    assert "Own 'own' cannot be cut" in own and "functional interface" in own
    assert "begins with a keras.Input" in unbuilt
