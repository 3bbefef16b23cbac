"""Every rule in every way, on 2 to 4 ranks along one axis and two: what the plain layer gives, and
all its gradients."""

import keras
import pytest

from tests.layers.divided import ways_tried
from tests.support.cases import latin
from tnt_notebook.plan.mesh import Mesh

L = keras.layers
SPACE_2D, SPACE_3D = ["height", "width"], ["depth", "height", "width"]

#: Of each family layers, the shapes of what they take, and the ways along one axis of two ranks.
CASES = {
    "dense": [
        (lambda: L.Dense(7), [(5,)], ["columns", "rows"]),
        (lambda: L.Dense(6, activation="relu"), [(5, 4)], ["dim 1", "columns", "rows"]),
        (lambda: L.Dense(6, activation="softmax"), [(5,)], ["rows"]),
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
        (lambda: L.GlobalMaxPooling1D(), [(9, 4)], ["channels"]),
        (lambda: L.UpSampling2D(2), [(8, 4, 4)], [*SPACE_2D, "channels"]),
    ],
    "others": [
        (lambda: L.BatchNormalization(), [(8, 7, 4)], [*SPACE_2D, "channels"]),
        (lambda: L.Add(), [(8, 7, 4), (8, 7, 4)], [*SPACE_2D, "channels"]),
        (lambda: L.Multiply(), [(8, 7, 4), (1, 1, 4)], [*SPACE_2D, "channels"]),
        (lambda: L.Concatenate(), [(8, 7, 4), (8, 7, 3)], SPACE_2D),
        (lambda: L.Activation("softmax"), [(8, 7, 4)], SPACE_2D),
        (lambda: L.LeakyReLU(), [(5,)], ["channels"]),
    ],
}  # fmt: skip
MESHES = [Mesh(a=2), Mesh(a=3), Mesh(a=2, b=2), Mesh(a=4)]


def on_ranks(family: str, mesh: Mesh) -> list[list[list[str]]]:
    return [ways_tried(mesh, make, shapes) for make, shapes, _ in CASES[family]]


@pytest.mark.parametrize(("family", "mesh"), latin(CASES, MESHES, times=3))
def test_rules(ranks, family, mesh):
    (tried, *_) = ranks.run(mesh.size, on_ranks, family, mesh)
    for names, (_, _, expected) in zip(tried, CASES[family], strict=True):
        if mesh == Mesh(a=2):
            assert names == [[name] for name in expected]
        assert names or mesh.size > 2
