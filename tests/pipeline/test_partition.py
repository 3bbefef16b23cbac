"""Cuts into consecutive stages: what goes between them, and that the best is found."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tnt_notebook.errors import ModelError
from tnt_notebook.parallel.pipeline.partition import (
    Edge,
    Weighing,
    Wiring,
    begins_of,
    best_begins,
    bytes_of,
    partition,
    time_of,
)

#: Values 0 and 1 go in; 2 skips over the middle; the model returns 3 and 6.
SKIPPING = Wiring(
    calls=(((0,), (2,)), ((2,), (3,)), ((3, 1), (4,)), ((4,), (5,)), ((5, 2), (6,))),
    inputs=(0, 1),
    outputs=(3, 6),
)


def test_values_go_straight_from_maker_to_user():
    cut = partition(SKIPPING, [1, 3])
    assert [(s.begin, s.end, s.inputs, s.takes, s.gives) for s in cut.stages] == [
        (0, 1, (0,), (), (2,)),
        (1, 3, (1,), (2,), (3, 4)),
        (3, 5, (), (4, 2, 3), ()),
    ]
    assert set(cut.edges) == {Edge(2, 0, 1), Edge(4, 1, 2), Edge(2, 0, 2), Edge(3, 1, 2)}
    assert cut.pairs() == [(0, 1), (0, 2), (1, 2)]


def test_one_stage_has_it_all():
    (stage,) = partition(SKIPPING, []).stages
    assert (stage.inputs, stage.takes, stage.gives) == ((0, 1), (), ())


@pytest.mark.parametrize("begins", [[0], [5], [2, 2], [3, 1]])
def test_no_stage_may_be_empty(begins):
    with pytest.raises(ModelError, match="at least one of the 5 calls"):
        partition(SKIPPING, begins)


def test_stages_begin_with_named_layers():
    names = ["a", "conv2_block1", "b", "conv2_block1", "c"]
    assert begins_of(names, ["c", "conv2_block1"]) == [1, 4]
    with pytest.raises(ModelError, match=r"names 'conv2_blok1', .* Is it 'conv2_block1'\?"):
        begins_of(names, ["conv2_blok1"])
    with pytest.raises(ModelError, match="'a', with which the model begins"):
        begins_of(names, ["a"])


@st.composite
def problems(draw):
    """A random graph of up to nine calls, with times and sizes."""
    n = draw(st.integers(2, 9))
    calls = []
    for call in range(n):
        takes = draw(st.lists(st.integers(0, call), min_size=1, max_size=3, unique=True))
        calls.append((tuple(takes), (call + 1,)))
    outputs = draw(st.lists(st.integers(1, n), max_size=2, unique=True))
    numbers = st.lists(st.integers(0, 20), min_size=n, max_size=n)
    transfer = draw(st.dictionaries(st.integers(1, n), st.integers(0, 10)))
    weighing = Weighing(draw(numbers), transfer, draw(numbers), draw(numbers))
    stages = draw(st.integers(1, min(4, n)))
    held = draw(st.lists(st.integers(1, 4), min_size=stages, max_size=stages))
    limit = draw(st.one_of(st.just(float("inf")), st.integers(20, 200)))
    return Wiring(tuple(calls), (0,), (n, *outputs)), weighing, stages, held, limit


def slowest(wiring, weighing, begins):
    bounds = [0, *begins, len(wiring.calls)]
    return max(time_of(wiring, weighing, a, b) for a, b in itertools.pairwise(bounds))


def fits(wiring, weighing, begins, held, limit):
    bounds = itertools.pairwise([0, *begins, len(wiring.calls)])
    return all(bytes_of(weighing, a, b, h) <= limit for (a, b), h in zip(bounds, held, strict=True))


@given(problems())
@settings(max_examples=500, deadline=None)
def test_no_cut_is_better_than_the_one_that_is_found(problem):
    wiring, weighing, stages, held, limit = problem
    cuts = itertools.combinations(range(1, len(wiring.calls)), stages - 1)
    possible = [cut for cut in cuts if fits(wiring, weighing, cut, held, limit)]
    if not possible:
        with pytest.raises(ModelError, match="No cut into"):
            best_begins(wiring, weighing, stages, held, limit)
        return
    found = best_begins(wiring, weighing, stages, held, limit)
    assert fits(wiring, weighing, found, held, limit)
    best = min(slowest(wiring, weighing, cut) for cut in possible)
    assert slowest(wiring, weighing, found) == best


def test_a_model_of_few_layers_has_few_stages():
    with pytest.raises(ModelError, match="5 layer calls, so it cannot be cut into 6"):
        best_begins(SKIPPING, Weighing([1] * 5, {}, [0] * 5, [0] * 5), 6)
