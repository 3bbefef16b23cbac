"""Every schedule is whole, comes to an end, and is idle and holds as much as its formula says."""

import dataclasses
import graphlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tnt_notebook.errors import ScheduleError
from tnt_notebook.plan.families import FAMILIES, less_idle, make
from tnt_notebook.plan.schedule import Action, Schedule, check
from tnt_notebook.plan.simulate import Costs, even_costs, simulate

RANKS = range(1, 9)


def cases(family):
    for p in RANKS:
        for v in range(1, 5) if family.any_stages else (family.stages_per_rank,):
            for m in range(1, 4 * p + 2):
                yield p, m, v


families = pytest.mark.parametrize("family", FAMILIES.values(), ids=FAMILIES)


@families
def test_a_step_takes_as_long_as_the_formula_says(family):
    for p, m, v in cases(family):
        schedule = make(family.name, p, m, v)
        costs = even_costs(schedule.stages, 1 / v, 1 / v, 1 / v)
        step = simulate(schedule, costs)
        idle = family.idle(p, 1, 1, 1, v)
        if family.exact(p, m, v):
            assert step.seconds == pytest.approx(3 * m + idle), (p, m, v)
            assert step.bubble == pytest.approx(idle / (3 * m + idle)), (p, m, v)
        else:
            assert step.seconds >= 3 * m + idle - 1e-9, (p, m, v)


@pytest.mark.parametrize("name", [n for n in FAMILIES if n != "zb-v"])  # its own needs F = I = W
@given(
    p=st.integers(1, 6),
    rounds=st.integers(1, 4),
    forward=st.floats(0.5, 2),
    inputs=st.floats(0.5, 2),
    part=st.floats(0.1, 1),
)
@settings(max_examples=60)
def test_the_formula_holds_for_other_times(name, p, rounds, forward, inputs, part):
    weights = part * min(forward, inputs)
    m = rounds * p
    schedule = make(name, p, m, 1)
    step = simulate(schedule, even_costs(p, forward, inputs, weights))
    idle = FAMILIES[name].idle(p, forward, inputs, weights, 1)
    assert step.seconds == pytest.approx(m * (forward + inputs + weights) + idle)


@families
def test_no_rank_holds_more_activations_than_it_may(family):
    for p, m, v in cases(family):
        schedule = make(family.name, p, m, v)
        bounds = [min(family.held(rank, p, m, v), m * v) for rank in range(p)]
        assert all(held <= bound for held, bound in zip(schedule.held(), bounds, strict=True))
        if m >= 3 * p:
            assert max(schedule.held()) == max(bounds)


@pytest.mark.parametrize("name", FAMILIES)
def test_skip_connections_over_several_stages_fit_into_every_schedule(name):
    for p, m in [(2, 3), (4, 4), (5, 12)]:
        schedule = make(name, p, m)
        last = schedule.stages - 1
        edges = [(a, b) for a in range(last) for b in (a + 1, last)]
        check(schedule, edges)
        costs = even_costs(schedule.stages)
        assert simulate(schedule, costs, edges).seconds == simulate(schedule, costs).seconds


def test_a_schedule_that_is_idle_less_is_known_where_there_is_one():
    known = {name: less_idle(name) for name in [*FAMILIES, "lifo"]}
    assert known == dict.fromkeys(known, "zb-h1") | {"zb-h1": None, "zb-v": None}


def test_a_timeline_keeps_order_and_counts_transfers():
    schedule = make("1f1b", 2, 2)
    costs = Costs([1, 2], [1, 2], [0.5, 1], {(0, 1): 0.25})
    step = simulate(schedule, costs)
    shown = [(s.rank, str(s.action), s.begin, s.end) for s in step.spans]
    assert sorted(shown) == [
        (0, "B0.0", 6.5, 8.0), (0, "B0.1", 11.5, 13.0), (0, "F0.0", 0.0, 1.0),
        (0, "F0.1", 1.0, 2.0), (1, "B1.0", 3.25, 6.25), (1, "B1.1", 8.25, 11.25),
        (1, "F1.0", 1.25, 3.25), (1, "F1.1", 6.25, 8.25),
    ]  # fmt: skip
    assert step.bubble == pytest.approx(1 - 15 / 26)


GOOD = make("zb-h1", 3, 4)


def without(schedule: Schedule, rank: int, place: int) -> Schedule:
    actions = list(map(list, schedule.actions))
    del actions[rank][place]
    return dataclasses.replace(schedule, actions=tuple(map(tuple, actions)))


@given(rank=st.integers(0, 2), place=st.integers(0, 11))
def test_a_schedule_that_lacks_an_action_is_refused(rank, place):
    with pytest.raises(ScheduleError, match="needs F and B, or F, I and W"):
        check(without(GOOD, rank, place))


def comes_to_an_end(schedule: Schedule) -> bool:
    """By another way than the checker's: whether what waits for what has no cycle."""
    waits: dict[Action, set[Action]] = {}
    for actions in schedule.actions:
        for before, action in zip((None, *actions), actions, strict=False):
            kind, stage, micro = action
            waits[action] = set() if before is None else {before}
            if kind == "F" and stage > 0:
                waits[action].add(Action("F", stage - 1, micro))
            if kind == "I":
                waits[action].add(Action("F", stage, micro))
                if stage + 1 < schedule.stages:
                    waits[action].add(Action("I", stage + 1, micro))
            if kind == "W":
                waits[action].add(Action("I", stage, micro))
    try:
        graphlib.TopologicalSorter(waits).prepare()
    except graphlib.CycleError:
        return False
    return True


@given(rank=st.integers(0, 2), place=st.integers(0, 11), to=st.integers(0, 11))
@settings(max_examples=300)
def test_an_order_is_refused_if_ranks_would_wait_for_each_other(rank, place, to):
    actions = list(map(list, GOOD.actions))
    actions[rank].insert(to, actions[rank].pop(place))
    changed = dataclasses.replace(GOOD, actions=tuple(map(tuple, actions)))
    if comes_to_an_end(changed):
        check(changed)
    else:
        with pytest.raises(ScheduleError, match=r"rank \d waits in \S+ for "):
            check(changed)


@pytest.mark.parametrize(
    ("actions", "message"),
    [
        ([("F", 0, 0), ("F", 0, 0)], "has F0.0 twice"),
        ([("F", 0, 1)], "has F0.1 on rank 0, with 2 stages and 1 micro-batches"),
        ([("X", 0, 0)], "unknown kind 'X' on rank 0"),
        ([("F", 1, 0)], "has F1.0 on rank 0, but stage 1 is on rank 1"),
        ([("F", 0, 0), ("B", 0, 0), ("W", 0, 0)], "has FBW for micro-batch 0 on stage 0"),
    ],
)
def test_what_is_wrong_is_named(actions, message):
    schedule = Schedule("mine", (0, 1), 1, (tuple(Action(*a) for a in actions), ()))
    with pytest.raises(ScheduleError, match=message):
        check(schedule)


def test_ranks_that_wait_for_each_other_are_named():
    rank_0 = [Action(*a) for a in (("F", 0, 0), ("B", 0, 0), ("F", 0, 1), ("B", 0, 1))]
    rank_1 = [Action(*a) for a in (("F", 1, 1), ("B", 1, 1), ("F", 1, 0), ("B", 1, 0))]
    schedule = Schedule("crossed", (0, 1), 2, (tuple(rank_0), tuple(rank_1)))
    with pytest.raises(ScheduleError) as raised:
        check(schedule)
    assert "rank 0 waits in B0.0 for B1.0" in str(raised.value)
    assert "rank 1 waits in F1.1 for F0.1" in str(raised.value)


def one_micro_batch_after_the_other(ranks, micro_batches, stages_per_rank):
    actions = tuple(
        tuple(Action(kind, rank, micro) for micro in range(micro_batches) for kind in "FB")
        for rank in range(ranks)
    )
    return Schedule("naive", tuple(range(ranks)), micro_batches, actions)


def test_a_function_of_ones_own_makes_a_schedule():
    schedule = make(one_micro_batch_after_the_other, 3, 5)
    assert simulate(schedule, even_costs(3)).seconds == 5 * 3 * 3
    assert schedule.held() == [1, 1, 1]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("2f2b", 2, 4), "There is no schedule '2f2b'. There are gpipe, 1f1b"),
        (("1f1b", 0, 4), "at least one rank"),
        (("1f1b", 2, 0), "one micro-batch"),
        (("1f1b", 2, 4, 2), "1f1b has 1 stage a rank, not 2"),
        (("zb-v", 2, 4, 3), "zb-v has 2 stages a rank, not 3"),
        (("gpipe", 2, 4, 0), "at least one stage, not 0"),
        ((lambda *_: [], 2, 4), "gave a list instead of"),
    ],
)
def test_what_cannot_be_made_is_refused(arguments, message):
    with pytest.raises(ScheduleError, match=message):
        make(*arguments)
