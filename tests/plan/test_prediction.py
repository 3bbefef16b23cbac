"""What a plan says, against numbers worked out by hand."""

import dataclasses
import json

import pytest

from tnt_notebook.errors import ScheduleError
from tnt_notebook.plan.families import FAMILIES, make
from tnt_notebook.plan.options import Pipeline
from tnt_notebook.plan.partition import Wiring
from tnt_notebook.plan.prediction import (
    InputPlan,
    Losses,
    as_json,
    from_json,
    plan_of,
    with_input,
)  # fmt: skip
from tnt_notebook.plan.profile import Profile, Variable, trained_so
from tnt_notebook.plan.schedule import Action, Schedule
from tnt_notebook.plan.simulate import Span
from tnt_notebook.plan.stages import Memory, rank_bytes

#: Four calls in a chain that each take 1 s forward, 1 s and 2 s backward, keep what they take, and
#: have 10 numbers; the last also has an untrained one. A value is 100 bytes; the loss keeps one.
CHAIN = Wiring(tuple(((i,), (i + 1,)) for i in range(4)), (0,), (4,))
PROFILE = Profile(
    [1.0] * 4, [1.0] * 4, [2.0] * 4, [0.5] * 4, {}, dict.fromkeys(range(5), 100),
    [(i,) for i in range(4)], [7, 0, 0, 0], [(0,), (1,), (2,), (3, 4)],
    [*[Variable(10, 40)] * 4, Variable(1, 4, trained=False)], slots=2.0,
)  # fmt: skip
NAMES = ["a", "b", "c", "d"]


def planned(schedule="1f1b", ranks=2, micro_batches=2, profile=PROFILE, begins=(2,), **more):
    made = make(schedule, ranks, micro_batches)
    return plan_of(CHAIN, profile, NAMES, made, list(begins), 32, **more)


def test_two_equal_stages():
    # F 2 s, B 6 s:   rank 0   F0 F1 .. .. B0 B0 B0 B1 B1 B1        from 0 s to 24 s
    #                 rank 1      F0 B0 B0 B0 F1 B1 B1 B1           from 2 s to 18 s
    plan = planned()
    assert plan.step_s == 24
    assert [24 * (1 - plan.timeline.idle(rank)) for rank in range(2)] == pytest.approx([16, 16])
    assert plan.spans[0] == Span(0, Action("F", 0, 0), 0, 2)
    assert (plan.bubble, plan.formula_bubble) == pytest.approx((1 / 3, 1 / 3))
    assert plan.samples_per_s == pytest.approx(32 / 24)
    assert plan.speedup == pytest.approx(32 / 24)  # one rank takes 2 micro-batches of 16 s
    assert plan.rows == 16 and plan.losses == Losses(0, 0, 8)
    first, second = plan.stages
    assert (first.first, first.last, first.layers, first.rank) == ("a", "b", 2, 0)
    assert (first.forward_s, first.backward_s) == (2, 6)
    assert (first.parameters, second.parameters) == (20, 21)
    assert (first.held, second.held) == (2, 1)
    assert first.memory == Memory(80, 80, 160, 2 * 207, 0) and first.memory.total == 734
    assert second.memory == Memory(84, 80, 160, 300, 0)
    assert plan.rank_bytes == (first.memory.total, second.memory.total)
    assert (first.sent_bytes, second.sent_bytes) == (100, 0)


def test_what_costs_most_is_told():
    uneven = planned(begins=(3,))  # 3 + 9 s and 1 + 3 s
    # Rank 0 does two forwards, waits from 6 s to 7 s for rank 1's first backward, then has two.
    assert uneven.step_s == 6 + 1 + 18 and uneven.losses.imbalance == 25 - 24
    slow = dataclasses.replace(PROFILE, transfer={2: 8.0})  # 4 s there, 4 s back
    sending = planned(profile=slow)
    assert sending.step_s == 24 + 8 and sending.losses == Losses(0, 8, 8)


def test_replicas_share_a_batch():
    plan = planned(replicas=2)
    assert plan.rows == 8
    assert plan.speedup == pytest.approx(2 * 32 / 24)


def test_recomputation_keeps_what_a_stage_takes():
    plan = planned(profile=trained_so(PROFILE, True, True))
    first, second = plan.stages
    assert (first.forward_s, first.backward_s) == (2, 7)
    # Beside what they take: activations of one micro-batch, and its gradients before the sum.
    assert (first.memory.activations, first.memory.working) == (2 * 100, 207 + 80)
    assert (second.memory.activations, second.memory.working) == (100, 300 + 80)
    assert plan.recompute and plan.rank_bytes[0] == 320 + 407 + 80


def test_ranks_with_two_stages():
    plan = planned("interleaved", begins=(1, 2, 3))
    assert [stage.rank for stage in plan.stages] == [0, 1, 0, 1]
    assert all(stage.sent_bytes == 100 for stage in plan.stages[:3])
    held = make("interleaved", 2, 2).held_by_stage()
    assert held == [stage.held for stage in plan.stages] and max(held) == 2
    # Never more than all that its stages hold at their own worst.
    assert plan.rank_bytes[0] <= 320 + held[0] * 107 + held[2] * 100


@pytest.mark.parametrize("name", FAMILIES)
def test_memory_follows_the_actions(name):
    schedule = make(name, 2, 5)
    begins = [2] if schedule.stages == 2 else [1, 2, 3]
    needs = rank_bytes(CHAIN, PROFILE, schedule, begins)
    assert len(needs) == 2 and all(need >= 320 + 200 for need in needs)
    assert sum(schedule.held_by_stage()) >= sum(schedule.held())


def test_a_schedule_of_ones_own_has_no_formula():
    usual = make("gpipe", 2, 2)
    own = Schedule("own", usual.rank_of, 2, usual.actions)
    assert plan_of(CHAIN, PROFILE, NAMES, own, [2], 32).formula_bubble is None


@pytest.mark.parametrize("name", FAMILIES)
def test_a_plan_survives_json(name):
    begins = (1, 2, 3) if FAMILIES[name].stages_per_rank == 2 else (2,)
    plan = planned(name, begins=begins)
    assert from_json(json.loads(json.dumps(as_json(plan), allow_nan=False))) == plan
    assert len(repr(plan)) < 3000


def test_a_limit_of_memory_is_bytes_or_text():
    assert Pipeline(2, memory_limit="1.5 GB").limit_bytes == 3 << 29
    assert Pipeline(2, memory_limit=1000).limit_bytes == 1000
    assert Pipeline(2).limit_bytes == float("inf")
    with pytest.raises(ScheduleError, match="memory_limit '4XB': write sizes like 4GB or 800MB"):
        Pipeline(2, memory_limit="4XB")
    with pytest.raises(ScheduleError, match="memory_limit is a number of bytes, not -1"):
        Pipeline(2, memory_limit=-1)
    assert Pipeline(2, 8).rows_of(100, 2) == 7


def test_a_step_takes_as_long_as_its_input_if_that_is_longer():
    alone = planned()
    fast, slow = (
        with_input(alone, InputPlan("train", "", 32 / seconds)) for seconds in (1.0, 96.0)
    )
    assert (fast.step_s, fast.input_s, fast.bubble) == (24, 1, alone.bubble)
    assert (slow.step_s, slow.compute_s, slow.input_s) == (96, 24, 96)
    assert slow.samples_per_s == pytest.approx(32 / 96)
    assert slow.speedup == pytest.approx(alone.speedup / 4)
    assert slow.bubble == pytest.approx(1 - 16 / 96)
    assert from_json(json.loads(json.dumps(as_json(slow)))) == slow
