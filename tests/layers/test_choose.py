"""The cheapest layouts: none that anybody finds by trying all is cheaper."""

import itertools

import keras
import pytest

from tests.layers.networks import transformer
from tnt_notebook.errors import MeshError
from tnt_notebook.parallel.layers.choose import Costs, chosen, cost, options
from tnt_notebook.parallel.layers.program import Program, site_of
from tnt_notebook.parallel.pipeline.survey import surveyed
from tnt_notebook.plan.mesh import Mesh, Split

L = keras.layers


def pair() -> keras.Model:
    return keras.Sequential([keras.Input((64,)), L.Dense(256, "relu"), L.Dense(64)])


def skipping() -> keras.Model:
    x = keras.Input((8, 8, 4))
    y = L.Conv2D(4, 3, padding="same")(x)
    y = L.Add()([L.ReLU()(y), x])
    return keras.Model(x, L.GlobalAveragePooling2D()(y))


def twice() -> keras.Model:
    x, layer = keras.Input((16,)), L.Dense(16, "relu")
    return keras.Model(x, layer(layer(x)))


@pytest.mark.parametrize("make", [pair, skipping, twice])
@pytest.mark.parametrize("mesh", [Mesh(model=2), Mesh(height=2, model=3)], ids=str)
@pytest.mark.parametrize("latency", [1e-7, 1e-4])
def test_nothing_is_cheaper(make, mesh, latency):
    graph, costs = surveyed(make()), Costs(flops=1e8, latency=latency)
    each = [list(options(site_of(graph, call), mesh)) for call in graph.calls]
    programs = [Program(graph, ways) for ways in itertools.product(*each)]
    if make is twice:  # the same weights, in one layout
        programs = [p for p in programs if p.ways[0] == p.ways[1]]
    cheapest = min(cost(program, mesh, 8, costs) for program in programs)
    assert cost(chosen(graph, mesh, 8, costs), mesh, 8, costs) == pytest.approx(cheapest)


def test_columns_and_rows_make_a_pair():
    """Of two dense layers the first is cut by columns, the second by rows: one sum a direction."""
    program = chosen(surveyed(pair()), Mesh(model=2), 64, Costs(flops=1e8, latency=1e-5))
    assert [ways["model"].name for ways in program.ways] == ["columns", "rows"]


def test_an_axis_with_the_name_of_a_dimension_cuts_that_alone():
    program = chosen(surveyed(skipping()), Mesh(width=2), 64, Costs(flops=1e6, latency=1e-7))
    assert {way.name for ways in program.ways for way in ways.values()} == {"width"}


@pytest.mark.parametrize("tied", ["layer", "operation"])
def test_weights_of_several_calls_have_one_layout(tied):
    """An embedding whose transpose makes scores is not cut where those want it whole."""
    graph, mesh = surveyed(transformer(tied)), Mesh(model=2)
    program = chosen(graph, mesh, 64, Costs(flops=1e6, latency=1e-7))
    (ways, *_) = program.ways
    assert not ways and any(program.ways)
    with pytest.raises(MeshError, match="cannot divide them as those are to"):
        chosen(graph, mesh, 64, layouts={"embedding.*": Split(columns="model")})


@pytest.mark.parametrize(
    ("given", "cut"),
    [
        ({}, True),
        ({"kernel_regularizer": "l2", "kernel_constraint": "non_neg"}, True),
        ({"kernel_regularizer": keras.regularizers.OrthogonalRegularizer()}, False),
        ({"kernel_constraint": keras.constraints.MaxNorm(1.0)}, False),
        ({"activation": lambda x: x - keras.ops.mean(x)}, False),
    ],
)
def test_what_looks_at_a_whole_is_not_given_a_block(given, cut):
    model = keras.Sequential([keras.Input((6,)), L.Dense(6, **given)])
    graph = surveyed(model)
    assert any(options(site_of(graph, graph.calls[0]), Mesh(model=2))) == cut
