"""What a distribution of Keras says of a model, as a mesh and layouts: without ranks."""

import re
from typing import Any

import keras
import numpy as np
import pytest

from tests.layers.mapped import GRID, MIXED, layout_map, mixed, mlp
from tnt_notebook.errors import MeshError
from tnt_notebook.keras.distribution import Devices
from tnt_notebook.parallel.layer_graph.survey import surveyed
from tnt_notebook.parallel.layers.choose import chosen
from tnt_notebook.parallel.layers.program import Program, layer_call_of
from tnt_notebook.parallel.layers.rule import ways_of
from tnt_notebook.parallel.training.keras_distribution import Division, division_by, mesh_of
from tnt_notebook.plan.mesh import Mesh

L, kd = keras.layers, keras.distribution


def asked(model: keras.Model, layouts: dict[str, Any], **how: Any) -> tuple[Division, Program]:
    shape, axes = how.pop("shape", (2, 2)), how.pop("axes", GRID)
    distribution = kd.ModelParallel(layout_map=layout_map(shape, axes, layouts), **how)
    division = division_by(distribution, model, 0, int(np.prod(shape)))
    if division.mesh is None:
        division.layouts.check_whole()
    return division, chosen(
        surveyed(model), division.mesh or Mesh(data=1), 8, layouts=division.layouts
    )


def test_weights_are_cut_as_the_map_says():
    model = mixed()
    _, program = asked(model, MIXED)
    for variable in model.variables:
        said = next((v for k, v in MIXED.items() if re.fullmatch(k, variable.path)), ())
        cut = {dim: axis for dim, axis in enumerate(said) if axis}
        assert program.weights[id(variable)].axes == cut, variable.path


def test_a_map_of_nothing_leaves_weights_whole():
    _, program = asked(mlp(), {})
    assert not any(layout.splits for layout in program.weights.values())


def test_what_a_layer_gives_has_the_layout_of_its_path():
    columns = {"mlp/first/kernel": (None, "model"), "mlp/first/bias": ("model",)}
    free = {"mlp/second/output": ("batch", "model"), "mlp/output": ("batch",)}
    _, program = asked(mlp(), {**columns, "mlp/first/output": ("batch", None), **free})
    assert {program.graph.specs[v].name: dict(w.splits) for v, w in program.asked.items()} == {
        program.graph.specs[program.graph.calls[0].gives[0]].name: {},
        program.graph.specs[program.graph.calls[1].gives[0]].name: {1: "model"},
    }


def of(ranks: str, batches: str | None = "batch", /, **axes: int) -> Devices:
    return Devices(tuple(axes.items()), tuple(f"gpu:{rank}" for rank in ranks), batches)


@pytest.mark.parametrize(
    ("devices", "mesh"),
    [
        (of("0123", batch=2, model=2), Mesh(data=2, model=2)),
        (of("0123", model=2, batch=2), Mesh(model=2, data=2)),
        (of("0213", batch=2, model=2), Mesh(model=2, data=2)),  # neighbours along the first axis
        (of("01", batch=1, model=2), Mesh(data=1, model=2)),
        (of("01", "data", data=2), Mesh(data=2)),
    ],
)
def test_a_device_mesh_is_a_mesh_of_ranks(devices, mesh):
    assert mesh_of(devices, len(devices.names)) == mesh


@pytest.mark.parametrize(
    ("devices", "said"),
    [
        (of("01", batch=1, model=2), "there are 4 ranks"),
        (of("0112", batch=2, model=2), "once"),
        (of("0132", batch=2, model=2), "form no grid of 2 x 2"),
        (of("0123", None, batch=2, model=2), "batch_dim_name=None is not an axis"),
        (of("0123", "rows", batch=2, model=2), "batch_dim_name='rows' is not an axis"),
        (of("0123", batch=2, stage=2), "'stage' of the DeviceMesh cannot be combined with 'batch'"),
        (of("0123", batch=2, data=2), "'data' of the DeviceMesh cannot be combined with 'batch'"),
    ],
)
def test_ranks_that_form_no_mesh_are_refused(devices, said):
    with pytest.raises(MeshError, match=re.escape(said)):
        mesh_of(devices, 4)


KERNEL = {"mlp/first/kernel": (None, "model")}


@pytest.mark.parametrize(
    ("layouts", "how", "said"),
    [
        (KERNEL, {}, "It can have mlp/first/kernel (None, 'model'), mlp/first/bias ('model',); or"),
        ({"mlp/first/bias": ("model",)}, {}, "Dense first cannot be divided on the mesh"),
        ({"mlp/third/kernel": (None, "model")}, {"shape": (1, 4)}, "mlp/third/kernel ('model', No"),
        ({"mlp/first/kernel": ("batch", None)}, {}, "an axis of its own for weights"),
        (KERNEL, {"shape": (4,), "axes": ("model",)}, "an axis of its own for weights"),
        (KERNEL, {"auto_shard_dataset": False}, "each reads its part"),
        ({"mlp/first/kernel": (None, None, "model")}, {}, "has 2 dimensions, and its layout"),
        ({"mlp/first/kernel": ("model", "model")}, {}, "an axis of the mesh, once, or None"),
        ({"mlp/first/output": (None, "model")}, {}, "begins with 'batch'"),
        ({"mlp/third/output": ("batch", "model")}, {"shape": (1, 4)}, "cannot be cut for the 4 ra"),
        ({"mlp/output": ("batch", "model")}, {}, "mlp is the model itself"),
    ],
)  # fmt: skip
def test_what_cannot_be_followed_is_refused(layouts, how, said):
    with pytest.raises(MeshError) as raised:
        asked(mlp(), layouts, **how)
    assert said in str(raised.value)


def test_a_weight_that_two_keys_are_of_is_refused_as_by_keras():
    with pytest.raises(ValueError, match=r"first/kernel.*(multiple|matches)"):
        asked(mlp(), {"mlp/first/.*": (None,), ".*kernel": (None, "model")})


@pytest.mark.parametrize("tie_weights", [True, False])
def test_the_embedding_of_a_language_model_is_cut_by_words(tie_weights):
    """As Gemma and Llama say it."""
    words = keras.Input((None,), dtype="int32")
    embedding = L.ReversibleEmbedding(7, 6, tie_weights=tie_weights, name="token_embedding")
    model = keras.Model(words, embedding(L.Dense(6)(embedding(words)), reverse=True))
    asked(model, {"token_embedding/embeddings": ("model", None)})


class Own(keras.Layer):
    """Has no rule."""

    def build(self, shape: Any) -> None:
        self.scale = self.add_weight(shape=(shape[-1],), name="scale")

    def call(self, x: Any) -> Any:
        return x * self.scale


def test_steps_whose_layer_adds_to_the_loss_are_not_divided():
    adds = L.Dense(3, activity_regularizer="l2")
    inner = keras.Sequential([keras.Input((4,)), keras.Sequential([keras.Input((4,)), adds])])
    model = keras.Sequential([keras.Input((6, 4)), L.TimeDistributed(inner)])
    graph = surveyed(model)
    assert ways_of(layer_call_of(graph, graph.calls[0]), "model", 2) == []


def test_a_layer_without_a_rule_is_whole_and_says_so():
    model = keras.Sequential([keras.Input((4,)), Own(name="own"), L.Dense(2)], name="mlp")
    asked(model, {})
    with pytest.raises(MeshError, match=r"mlp/own/scale \('model',\)\. Own has no rule"):
        asked(model, {"mlp/own/scale": ("model",)})


def test_keys_of_nothing_are_told():
    with pytest.warns(UserWarning, match=r"'frist/.*' in the LayoutMap: .* mlp/first/kernel"):
        asked(mlp(), {"frist/.*": (None, "model")})


def test_only_batches_may_be_cut():
    whole = division_by(kd.DataParallel(devices=["cpu:0", "cpu:1"]), mlp(), 0, 2)
    assert whole.mesh is None
    whole.layouts.check_whole()
    parts = kd.ModelParallel(layout_map=layout_map((2, 1), GRID, {"mlp/first/output": (None,)}))
    division = division_by(parts, mlp(), 0, 2)
    assert division.mesh is None
    with pytest.raises(MeshError, match="begins with 'batch'"):
        division.layouts.check_whole()
