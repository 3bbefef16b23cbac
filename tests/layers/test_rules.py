"""Every rule in every way, on 2 to 4 ranks along one axis and two: what the plain layer gives, and
all its gradients."""

import difflib
from collections.abc import Callable
from typing import Any

import keras
import pytest

import tnt_notebook as tnt
from tests.layers.divided import traced_alike, ways_tried
from tests.layers.own_rules import Centred, Gain, Product
from tests.support.cases import latin
from tnt_notebook.errors import MeshError
from tnt_notebook.parallel.layer_graph.survey import surveyed
from tnt_notebook.parallel.layers.program import layer_call_of
from tnt_notebook.parallel.layers.rule import Cut, Way, ways_of
from tnt_notebook.plan.mesh import Mesh

L = keras.layers
SPACE_2D, SPACE_3D = ["height", "width"], ["depth", "height", "width"]


def attending(layer: keras.Layer) -> Callable[[Any], Any]:
    return lambda x: layer(x, x, use_causal_mask=True)


def masked_by_heads(layer: keras.Layer) -> Callable[[Any], Any]:
    return lambda both: layer(both[0], both[0], attention_mask=both[1])


def reverse(layer: keras.Layer) -> Callable[[Any], Any]:
    return lambda x: layer(x, reverse=True)


#: Of each family layers, the shapes of what they take, and the ways along one axis of two ranks.
CASES = {
    "dense": [
        (lambda: L.Dense(7), [(5,)], ["columns", "rows"]),
        (lambda: L.Dense(6, activation="relu"), [(5, 4)], ["dim 1", "columns", "rows"]),
    ],
    "convolution": [
        (lambda: L.Conv2D(4, 3, padding="same", activation="relu"), [(9, 7, 4)],
         [*SPACE_2D, "filters", "channels"]),
        (lambda: L.Conv2D(5, (5, 3), strides=2, padding="same"), [(11, 8, 4)],
         [*SPACE_2D, "filters", "channels"]),
        (lambda: L.Conv2D(5, (3, 2), dilation_rate=2, use_bias=False), [(13, 12, 4)],
         [*SPACE_2D, "filters", "channels"]),
        (lambda: L.Conv1D(4, 3, padding="causal"), [(9, 4)], ["width", "filters", "channels"]),
        (lambda: L.Conv3D(4, 3, padding="same"), [(6, 5, 4, 4)],
         [*SPACE_3D, "filters", "channels"]),
        (lambda: L.DepthwiseConv2D(3, padding="same"), [(8, 5, 4)], SPACE_2D),
        (lambda: L.SeparableConv2D(4, 3, strides=2, padding="same"), [(8, 9, 4)], SPACE_2D),
    ],
    "pooling": [
        (lambda: L.MaxPooling2D(3, 2, padding="same"), [(9, 8, 4)], [*SPACE_2D, "channels"]),
        (lambda: L.MaxPooling1D(2), [(9, 4)], ["width", "channels"]),
        (lambda: L.AveragePooling2D(3, 2), [(9, 11, 4)], [*SPACE_2D, "channels"]),
        (lambda: L.GlobalAveragePooling2D(), [(9, 8, 4)], [*SPACE_2D, "channels"]),
        (lambda: L.UpSampling2D((2, 3)), [(7, 5, 4)], [*SPACE_2D, "channels"]),
    ],
    "transposed": [
        (lambda: L.Conv2DTranspose(4, 3, strides=2, padding="same"), [(5, 4, 3)],
         [*SPACE_2D, "filters"]),
        (lambda: L.Conv1DTranspose(4, 4, strides=3, activation="relu"), [(5, 3)],
         ["width", "filters"]),
        (lambda: L.Conv2DTranspose(4, 2, strides=3, use_bias=False), [(5, 4, 3)],
         [*SPACE_2D, "filters"]),
        (lambda: L.ZeroPadding2D(((1, 2), (0, 3))), [(6, 5, 4)], [*SPACE_2D, "channels"]),
        (lambda: L.Cropping1D((1, 2)), [(9, 4)], ["width", "channels"]),
        (lambda: L.Flatten(), [(12, 3, 2)], ["height"]),
        (lambda: L.Permute((2, 1)), [(5, 4)], ["dim 1", "dim 2"]),
    ],
    "sequences": [
        (lambda: L.EinsumDense("abc,cde->abde", (5, 4, 3), bias_axes="de"), [(5, 6)],
         ["dim 1", "rows", "columns", "columns"]),
        (lambda: L.EinsumDense("abde,dec->abc", (5, 6), bias_axes="c"), [(5, 4, 3)],
         ["dim 1", "rows", "rows", "columns"]),
        (lambda: attending(L.MultiHeadAttention(4, 3, dropout=0.3, seed=3)), [(5, 6)], ["heads"]),
        (lambda: masked_by_heads(L.MultiHeadAttention(4, 3)), [(5, 6), (4, 5, 5)], ["heads"]),
        (lambda: attending(L.GroupQueryAttention(3, 8, 4)), [(5, 6)], ["heads"]),
        (lambda: L.Embedding(7, 6), [(5,)], ["columns", "rows", "dim 1"]),
        (lambda: L.Embedding(7, 6, mask_zero=True), [(5,)], ["columns", "rows", "dim 1"]),
        (lambda: reverse(L.ReversibleEmbedding(7, 6, logit_soft_cap=3.0)), [(5, 6)],
         ["dim 1", "rows", "columns"]),
        (lambda: reverse(L.ReversibleEmbedding(7, 6, tie_weights=False)), [(5, 6)],
         ["dim 1", "rows", "columns", *3 * ["dim 1"], *3 * ["rows"], *3 * ["columns"],
          *3 * ["whole"]]),
    ],
    "others": [
        (lambda: L.BatchNormalization(), [(8, 7, 4)], [*SPACE_2D, "channels"]),
        (lambda: L.BatchNormalization(axis=1), [(4, 6)], ["channels", "channels"]),
        (lambda: L.Add(), [(8, 7, 4), (8, 7, 4)], [*SPACE_2D, "channels"]),
        (lambda: L.Multiply(), [(8, 7, 4), (1, 1, 4)], [*SPACE_2D, "channels"]),
        (lambda: L.Concatenate(), [(8, 7, 4), (8, 7, 3)], SPACE_2D),
        (lambda: L.LeakyReLU(), [(5,)], ["channels"]),
    ],
}  # fmt: skip
#: The same, each family on one mesh.
MORE = {
    "softmax": [
        (lambda: L.Dense(7, activation="softmax"), [(5,)], ["columns", "rows"]),
        (lambda: L.Conv1D(5, 1, activation="log_softmax"), [(4, 3)],
         ["width", "filters", "channels"]),
        (lambda: L.Activation("softmax"), [(8, 7, 4)], [*SPACE_2D, "channels"]),
        (lambda: L.Softmax((1, 2)), [(5, 7)], ["width", "channels"]),
    ],
    "statistics": [
        (lambda: L.LayerNormalization(), [(5, 6)], ["width", "features"]),
        (lambda: L.LayerNormalization((1, 2)), [(5, 6)], ["features", "features"]),
        (lambda: L.RMSNormalization(), [(5, 6)], ["width", "features"]),
        (lambda: L.GroupNormalization(4), [(5, 3, 8)], [*SPACE_2D, "channels"]),
    ],
    "in space": [
        (lambda: L.AveragePooling2D((3, 4), 2, padding="same"), [(9, 11, 4)],
         [*SPACE_2D, "channels"]),
        (lambda: L.GlobalMaxPooling2D(keepdims=True), [(9, 5, 4)], [*SPACE_2D, "channels"]),
        (lambda: L.UpSampling2D(2, interpolation="bilinear"), [(7, 5, 4)],
         [*SPACE_2D, "channels"]),
    ],
    "of one's own": [
        (Gain, [(5, 6)], ["dim 1", "dim 2"]),
        (Product, [(5, 6)], ["columns", "rows"]),
        (Centred, [(5, 6)], ["dim 1", "channels"]),
    ],
    "places": [
        (lambda: L.Reshape((12, 5, 6)), [(12, 30)], ["width"]),
        (lambda: L.Reshape((3, 5, 12)), [(15, 2, 6)], ["width"]),
        (lambda: L.TimeDistributed(L.Dense(3)), [(5, 4)], ["width"]),
        (lambda: L.RepeatVector(5), [(6,)], ["width", "channels"]),
    ],
    "numbers": [
        (lambda: L.PReLU(shared_axes=[1]), [(5, 7, 4)], [*SPACE_2D, "channels"]),
        (lambda: L.Rescaling([1.0, 2, 3, 4, 5, 6], [0.1, 0.2, 0, 0, 0, 1]), [(5, 7, 6)],
         [*SPACE_2D, "channels"]),
        (lambda: L.Normalization(mean=[1, 2, 3, 4], variance=[4, 3, 2, 1]), [(5, 4)],
         ["width", "channels"]),
        (lambda: L.SpatialDropout2D(0.4, seed=3), [(5, 4, 6)], [*SPACE_2D, "channels"]),
        (lambda: L.GaussianNoise(0.4, seed=3), [(5, 4, 6)], [*SPACE_2D, "channels"]),
        (lambda: lambda x: x[0] * x[1], [(5, 4), (1, 4)], ["width", "channels"]),
        (lambda: lambda x: keras.ops.clip(x, -0.5, 0.5), [(5, 4)], ["width", "channels"]),
    ],
}  # fmt: skip
MESHES = [Mesh(a=2), Mesh(a=3), Mesh(a=2, b=2), Mesh(a=4)]


def on_ranks(family: str, mesh: Mesh) -> list[list[list[str]]]:
    return [ways_tried(mesh, make, shapes) for make, shapes, _ in (CASES | MORE)[family]]


@pytest.mark.parametrize(("family", "mesh"), [*latin(CASES, MESHES, times=3), *latin(MORE, MESHES)])
def test_rules(ranks, family, mesh):
    (tried, *_) = ranks.run(mesh.size, on_ranks, family, mesh)
    for names, (_, _, expected) in zip(tried, (CASES | MORE)[family], strict=True):
        if mesh == Mesh(a=2):
            assert names == [[name] for name in expected]
        assert names or mesh.size > 2


def traced(families: list[str]) -> list[list[list[str]]]:
    keras.utils.clear_session()  # of other tests, whose names count on, ranks have had others
    cases = [case for family in families for case in (CASES | MORE)[family]]
    return [traced_alike(Mesh(a=3), make, shapes) for make, shapes, _ in cases]


def test_what_is_traced_does_not_depend_on_the_rank(ranks):
    """Ranks at the ends of an image, and one between, differ by numbers alone: or gradients would
    come by in another order, and exchanges meet those of other branches."""
    families = [*CASES, *MORE]
    first, *others = ranks.run(3, traced, families)
    for other in others:
        for one, many in zip(first, other, strict=True):
            for ops_here, ops_there in zip(one, many, strict=True):
                found = difflib.unified_diff(ops_here, ops_there, lineterm="", n=2)
                assert ops_here == ops_there, "\n".join(found)


#: What a rule says of a layer that takes and gives [samples, 5, 6] and has a weight of 6 numbers.
WRONG = {
    "of 2 values that it takes": lambda layer: Way("w", [None, None], [None]),
    "of 0 values that it gives": lambda layer: Way("w", [None], []),
    "that cuts dimension 0 of (None, 5, 6), which is that of the samples": (
        lambda layer: Way("w", [Cut(0)], [0])
    ),
    "that cuts dimension 3 of (None, 5, 6), which is not there": (
        lambda layer: Way("w", [Cut(3)], [None])
    ),
    "with rows of 1 ranks, and there are 2": lambda layer: Way("w", [Cut(1, ((0, 3),))], [1]),
    "of a weight that it does not have": lambda layer: Way("w", [None], [1], {7: 0}),
    "gain/gain, which has (6,)": lambda layer: Way("w", [None], [2], {id(layer.gain): 1}),
}


@pytest.mark.parametrize("why", WRONG)
def test_a_rule_that_is_wrong_is_told_in_a_sentence(why):
    class Wrong(Gain):
        def call(self, x: Any) -> Any:
            return super().call(x)

    tnt.rule(Wrong)(lambda layer_call, parts: [WRONG[why](layer_call.layer)])
    model = keras.Sequential([keras.Input((5, 6)), Wrong(name="gain")])
    graph = surveyed(model)
    with pytest.raises(MeshError) as raised:
        ways_of(layer_call_of(graph, graph.calls[0]), "a", 2)
    assert "The rule of Wrong has for gain the way 'w' " in str(raised.value)
    assert why in str(raised.value)


def test_a_rule_is_of_classes():
    with pytest.raises(TypeError, match=r"@tnt.rule\(MyLayer\)"):
        tnt.rule(lambda layer_call, parts: [])  # type: ignore[arg-type]  # as @tnt.rule without classes
