"""What a step takes beside its layers, against numbers worked out by hand."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.plan.test_prediction import CHAIN, NAMES, PROFILE, planned
from tnt_notebook.plan.families import FAMILIES, make
from tnt_notebook.plan.overheads import NONE, Overheads, least_slowed_s, slowed
from tnt_notebook.plan.prediction import plan_of
from tnt_notebook.plan.simulate import even_costs, simulate


def test_ranks_of_a_pipeline_are_as_slow_as_the_slowest_replica():
    even = Overheads(busy=3.0, speeds=(1.0, 0.9))
    assert even.of_pipelines(1) is even
    uneven = Overheads(busy=3.0, speeds=(0.5, 1.0, 1.0, 0.25))
    assert uneven.of_pipelines(2).slowness == (1.0, 2.0)
    assert uneven.of_pipelines(1).slowness == (2.0,)
    assert uneven.of_pipelines(1, (2, 4, 4, 1)).slowness == (0.5,)
    assert uneven.of_pipelines(4).slowness == (1.0, 0.5, 0.5, 2.0)
    assert uneven.of_pipelines(4).busy == 1.5 and uneven.of_pipelines(4).slowness_of(3) == 2.0


def test_what_is_beside_the_layers_comes_on_top():
    # PROFILE: of each rank two calls, each with a trained weight of ten numbers.
    beside = Overheads(step_s=3.0, variable_s=0.5, element_s=0.25)
    plan = planned(overheads=beside)
    assert plan.beside_s == 3 + 2 * 0.5 + 20 * 0.25
    assert plan.step_s == planned().step_s + plan.beside_s
    assert plan.samples_per_s == pytest.approx(32 / plan.step_s)
    # One rank has all four weights: 2 micro-batches of 16 s, and 3 + 4 x 0.5 + 40 x 0.25 s.
    assert plan.speedup == pytest.approx((32 + 15) / plan.step_s)


def test_actions_and_messages_take_time_of_their_own():
    # As two equal stages: rank 0 has F F and B B of 2 and 6 s; rank 1 comes between.
    assert planned(overheads=Overheads(action_s=1.0)).step_s == 24 + 6
    sent = planned(overheads=Overheads(message_s=0.5))
    assert sent.step_s == 24 + 1 and sent.losses.messages == 1
    whole = make("1f1b", 1, 1)
    alone = plan_of(CHAIN, PROFILE, NAMES, whole, [], 32, overheads=Overheads(action_s=1.0))
    assert alone.step_s == 16  # whole copies have no actions


def test_ranks_are_slower_as_far_as_they_work_at_the_same_time():
    both = Overheads(busy=1.5)
    whole = make("1f1b", 1, 1)
    alone = plan_of(CHAIN, PROFILE, NAMES, whole, [], 32, overheads=both)
    shared = plan_of(CHAIN, PROFILE, NAMES, whole, [], 32, replicas=2, overheads=both)
    assert (alone.step_s, shared.step_s) == (16, 24)
    # Of 24 s both ranks work from 2 s to 4 s, ... in all for 8 of the 16 s that each works.
    timeline = planned().timeline
    together = sum(
        max(0.0, min(a.end, b.end) - max(a.begin, b.begin))
        for a in timeline.spans if a.rank == 0
        for b in timeline.spans if b.rank == 1
    )  # fmt: skip
    assert slowed(both, timeline, 1) == pytest.approx(1 + 0.5 * together / 16)
    assert planned(overheads=both).step_s == pytest.approx(24 * slowed(both, timeline, 1))


@given(
    st.sampled_from([*FAMILIES]), st.integers(2, 5), st.integers(1, 8), st.integers(1, 4),
    st.lists(st.floats(0.1, 9), min_size=3, max_size=3), st.floats(1, 4),
)  # fmt: skip
def test_no_step_is_shorter_than_the_bound(name, ranks, micro_batches, replicas, times, busy):
    family = FAMILIES[name]
    schedule = make(name, ranks, micro_batches)
    costs, overheads = even_costs(ranks * family.stages_per_rank, *times), Overheads(busy=busy)
    alone = simulate(schedule, costs)
    factor = slowed(overheads, alone, replicas)
    assert 1 <= factor <= busy * (1 + 1e-9)
    least = least_slowed_s(overheads, alone.seconds, alone.work, ranks, replicas)
    took = simulate(schedule, costs.slowed(factor)).seconds
    assert alone.seconds <= least * (1 + 1e-9) and least <= took * (1 + 1e-9)
    assert slowed(NONE, alone, replicas) == 1
