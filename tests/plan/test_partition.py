"""Cuts into consecutive stages: what goes between them, and that the best is found."""

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tnt_notebook.errors import ModelError
from tnt_notebook.plan.partition import Edge, Wiring, begins_of, partition
from tnt_notebook.plan.profile import Profile, Variable, load_of, trained_so
from tnt_notebook.plan.search import best_begins, loads_of

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
    with pytest.raises(ModelError, match="'a', the first layer of the model"):
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
    by_value = st.dictionaries(st.integers(0, n), st.integers(0, 10))
    kept = [tuple(draw(st.sets(st.sampled_from([*takes, *gives])))) for takes, gives in calls]
    uses = [tuple(draw(st.sets(st.integers(0, 4), max_size=2))) for _ in calls]
    variables = [
        Variable(count, 4 * count, draw(st.booleans()))
        for count in draw(st.lists(st.integers(1, 5), min_size=5, max_size=5))
    ]
    profile = Profile(
        draw(numbers), draw(numbers), draw(numbers), draw(numbers), draw(by_value),
        draw(by_value), kept, draw(numbers), uses, variables, draw(st.integers(0, 2)),
        draw(numbers),
    )  # fmt: skip
    if draw(st.booleans()):
        profile = trained_so(profile, draw(st.booleans()), draw(st.booleans()))
    stages = draw(st.integers(1, min(4, n)))
    held = draw(st.lists(st.integers(1, 4), min_size=stages, max_size=stages))
    limit = draw(st.one_of(st.just(float("inf")), st.integers(20, 300)))
    return Wiring(tuple(calls), (0,), (n, *outputs)), profile, stages, held, limit


def time_of(wiring, profile, begin, end):
    taken = stage_of(wiring, begin, end).takes
    parts = (profile.forward, profile.inputs, profile.weights)
    return sum(sum(part[begin:end]) for part in parts) + sum(
        profile.transfer.get(v, 0) for v in taken
    )


def trained_bytes(profile, begin, end):
    used = {v for uses in profile.uses[begin:end] for v in uses}
    return sum(profile.variables[v].bytes for v in used if profile.variables[v].trained)


def bytes_of(wiring, profile, begin, end, held):
    """Weights, their slots and gradients; what micro-batches keep, and the one at work needs; or
    the update."""
    stage = stage_of(wiring, begin, end)
    kept = {v for values in profile.kept[begin:end] for v in values}
    kept |= set(wiring.outputs if end == len(wiring.calls) else ())
    activations = sum(profile.inner_bytes[begin:end]) + bytes_in(profile, kept)
    if profile.recompute:
        activations += held * bytes_in(profile, {*stage.takes, *stage.inputs})
    else:
        activations *= held
    gradients = trained_bytes(profile, begin, end)
    activations += max(profile.working[begin:end]) + (gradients if profile.adds_up else 0)
    used = {v for uses in profile.uses[begin:end] for v in uses}
    weights = sum(map(profile.state_bytes, used))
    update = 2 * max(map(profile.gradient_bytes, used), default=0)
    return weights + gradients + max(activations, update)


def bytes_in(profile, values):
    return sum(profile.value_bytes.get(v, 0) for v in values)


def stage_of(wiring, begin, end):
    begins = [b for b in (begin, end) if 0 < b < len(wiring.calls)]
    return next(s for s in partition(wiring, begins).stages if s.begin == begin)


def slowest(wiring, profile, begins, slowness):
    bounds = zip(bounds_of(wiring, begins), slowness, strict=True)
    return max(slow * time_of(wiring, profile, a, b) for (a, b), slow in bounds)


def fits(wiring, profile, begins, held, limit):
    return all(
        bytes_of(wiring, profile, a, b, h) <= limit
        for (a, b), h in zip(bounds_of(wiring, begins), held, strict=True)
    )


def bounds_of(wiring, begins):
    return list(itertools.pairwise([0, *begins, len(wiring.calls)]))


@given(problems(), st.lists(st.sampled_from([1, 2, 3]), min_size=4, max_size=4))
@settings(max_examples=500)
def test_no_cut_is_better_than_the_one_that_is_found(problem, slow):
    wiring, profile, stages, held, limit = problem
    slow = slow[:stages]
    cuts = list(itertools.combinations(range(1, len(wiring.calls)), stages - 1))
    possible = [cut for cut in cuts if fits(wiring, profile, cut, held, limit)]
    if not possible:
        with pytest.raises(ModelError, match="No cut into"):
            best_begins(loads_of(wiring, profile), stages, held, limit)
        return
    found = best_begins(loads_of(wiring, profile), stages, held, limit, slowness=slow)
    assert fits(wiring, profile, found, held, limit)
    best = min(slowest(wiring, profile, cut, slow) for cut in possible)
    assert slowest(wiring, profile, found, slow) == best


def chain_of(seconds, megabytes):
    """Calls one after the other, that keep so much each, with a weight of 1 MB each."""
    n = len(seconds)
    return Wiring(tuple(((i,), (i + 1,)) for i in range(n)), (0,), (n,)), Profile(
        seconds, [0] * n, [0] * n, seconds, {}, {}, [()] * n, [m << 20 for m in megabytes],
        [(i,) for i in range(n)], [Variable(1 << 18, 1 << 20)] * n,
    )  # fmt: skip


def test_memory_moves_the_cut_and_what_the_best_needs_is_said():
    wiring, profile = chain_of([1, 1, 1, 3], [4, 4, 4, 0])
    assert best_begins(loads_of(wiring, profile), 2, [2, 1]) == [3]
    # Calls 0 to 1: 2 MB of weights, 2 MB of gradients, and 2 micro-batches of 8 MB.
    assert load_of(wiring, profile, 0, 2).bytes(2) == 20 << 20
    assert best_begins(loads_of(wiring, profile), 2, [2, 1], 22 << 20) == [2]
    with pytest.raises(ModelError, match=r"fits into 10 MB a rank: even the smallest needs 14 MB"):
        best_begins(loads_of(wiring, profile), 2, [2, 1], 10 << 20)


def test_a_model_of_few_layers_has_few_stages():
    wiring, profile = chain_of([1] * 5, [0] * 5)
    with pytest.raises(ModelError, match="5 layer calls, so it cannot be cut into 6"):
        best_begins(loads_of(wiring, profile), 6)
