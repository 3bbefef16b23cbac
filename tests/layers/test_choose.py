"""The cheapest layouts: none that anybody finds by trying all is cheaper."""

import itertools

import keras
import pytest

from tests.layers.networks import transformer
from tnt_notebook.errors import MeshError
from tnt_notebook.parallel.layer_graph.survey import surveyed
from tnt_notebook.parallel.layers.choose import chosen, cost, options, spent_on
from tnt_notebook.parallel.layers.costs import Costs, Estimate
from tnt_notebook.parallel.layers.program import Program, layer_call_of
from tnt_notebook.plan.mesh import Mesh, Split
from tnt_notebook.plan.network import Link

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
    graph, costs = surveyed(make()), Costs(flops=1e8, link=Link(latency, 2e9))
    each = [list(options(layer_call_of(graph, call), mesh)) for call in graph.calls]
    programs = [Program(graph, ways) for ways in itertools.product(*each)]
    if make is twice:  # the same weights, in one layout
        programs = [p for p in programs if p.ways[0] == p.ways[1]]
    estimate = Estimate(graph, mesh, 8, costs)
    every = [needed(program, estimate) for program in programs]
    cheapest, _ = min(every)
    assert cost(chosen(graph, mesh, 8, costs), mesh, 8, costs) == pytest.approx(cheapest)
    sizes = sorted({size for _, size in every})
    for limit in (sizes[0], sizes[len(sizes) // 3], sizes[-1]):
        seconds, size = needed(chosen(graph, mesh, 8, costs, memory=limit), estimate)
        assert size <= limit
        assert seconds == pytest.approx(min(s for s, size in every if size <= limit))
    with pytest.raises(MeshError, match="fit into .* a rank for 8 samples .* most of it "):
        chosen(graph, mesh, 8, costs, memory=sizes[0] - 1)


def needed(program: Program, estimate: Estimate) -> tuple[float, int]:
    """Seconds of a step, and bytes of a rank."""
    spent = spent_on(program, estimate)
    return sum(one.seconds for one in spent), sum(one.bytes for one in spent)


def test_where_memory_is_short_weights_are_cut():
    """Of replicas in space each has all weights; by columns and rows a part."""
    convolutions = [L.Conv2D(filters, 1) for filters in (16, 16, 16, 4)]
    model = keras.Sequential([keras.Input((8, 8, 2)), *convolutions])
    graph, mesh = surveyed(model), Mesh(model=2)
    costs = Costs(flops=1e8, link=Link(1e-7, 1e12), slots=1000.0)
    free = chosen(graph, mesh, 8, costs)
    size = needed(free, Estimate(graph, mesh, 8, costs))[1]
    tight = chosen(graph, mesh, 8, costs, memory=0.8 * size)
    names = [{way.name for ways in p.ways for way in ways.values()} for p in (free, tight)]
    assert names[0] <= {"height", "width"} and names[1] & {"filters", "channels"}


def test_what_was_measured_counts():
    """A layer that is said to take long is divided, whatever its operations say."""
    graph, mesh = surveyed(pair()), Mesh(model=2)
    slow = Costs(link=Link(1e-3, 2e9), calls={0: 1.0, 1: 1e-6})
    assert [bool(ways) for ways in chosen(graph, mesh, 8, Costs(link=Link(1e-3, 2e9))).ways] == [
        False
    ] * 2
    assert chosen(graph, mesh, 8, slow).ways[0]


def test_columns_and_rows_make_a_pair():
    """Of two dense layers the first is cut by columns, the second by rows: one sum a direction."""
    program = chosen(surveyed(pair()), Mesh(model=2), 64, Costs(flops=1e8, link=Link(1e-5, 2e9)))
    assert [ways["model"].name for ways in program.ways] == ["columns", "rows"]


def test_an_axis_with_the_name_of_a_dimension_cuts_that_alone():
    program = chosen(
        surveyed(skipping()), Mesh(width=2), 64, Costs(flops=1e6, link=Link(1e-7, 2e9))
    )
    assert {way.name for ways in program.ways for way in ways.values()} == {"width"}


@pytest.mark.parametrize("tied", ["layer", "operation"])
def test_weights_of_several_calls_have_one_layout(tied):
    """An embedding whose transpose makes scores is not cut where those want it whole."""
    graph, mesh = surveyed(transformer(tied)), Mesh(model=2)
    program = chosen(graph, mesh, 64, Costs(flops=1e6, link=Link(1e-7, 2e9)))
    (ways, *_) = program.ways
    assert not ways and any(program.ways)
    with pytest.raises(MeshError, match="cannot divide them as those have to"):
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
    assert any(options(layer_call_of(graph, graph.calls[0]), Mesh(model=2))) == cut
