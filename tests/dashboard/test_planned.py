"""A measured step beside itself as planned, and how much of it is idle: timelines by hand."""

import pytest

from tests.dashboard.steps import step_of_a_pipeline
from tests.telemetry.by_hand import step_of
from tnt_notebook.dashboard.figures.planned import planned
from tnt_notebook.dashboard.figures.step_layout import heading, idle, remarks
from tnt_notebook.plan.families import FAMILIES
from tnt_notebook.telemetry.step_trace import Box
from tnt_notebook.telemetry.step_trace import boxes as boxes_of

#: Two ranks, two micro-batches: messages take 0.5 s, the second forward of rank 0 is slow.
#:
#: rank 0  D F0 F0 1F 1F1F .  .  .  .  B0 B0 .  B1 B1 O
#: rank 1            F0 B0 F1 B1       (begins at 2.5 s)
BY_HAND = [
    Box(0, "D", 0, 0, 0.0, 1.0), Box(0, "F", 0, 0, 1.0, 2.0), Box(0, "F", 0, 1, 2.0, 5.0),
    Box(1, "R", 0, 0, 0.0, 2.5), Box(1, "F", 1, 0, 2.5, 3.5), Box(1, "B", 1, 0, 3.5, 5.5),
    Box(1, "F", 1, 1, 5.5, 6.5), Box(1, "B", 1, 1, 6.5, 8.5), Box(0, "S", 1, 0, 2.0, 2.5),
    Box(0, "B", 0, 0, 6.0, 8.0), Box(0, "B", 0, 1, 9.0, 11.0), Box(0, "O", 0, 0, 11.0, 12.0),
]  # fmt: skip


def test_of_a_pipeline_actions_count_from_the_first_to_the_last():
    # From 1 s to 11 s: rank 0 works for 1 + 3 + 2 + 2 s, rank 1 for 6 s.
    of = idle(step_of(*BY_HAND, schedule="1f1b"))
    assert of["idle"] == pytest.approx([0.2, 0.4], abs=1e-3)
    assert of["bubble"] == pytest.approx(0.3, abs=1e-3)


def test_without_a_pipeline_all_that_a_rank_computes_counts():
    boxes = [
        Box(0, "D", 0, 0, 0.0, 1.0), Box(0, "C", 0, 0, 1.0, 7.0), Box(0, "X", 0, 0, 5.0, 10.0),
        Box(3, "C", 0, 0, 0.0, 9.0), Box(0, "O", 0, 0, 6.0, 8.0),  # of the first gradients
    ]  # fmt: skip
    trace = step_of(*boxes, pipeline=1, ranks=4, schedule="1f1b")
    assert idle(trace) == {"idle": [0.3, 0.1], "bubble": 0.2}
    assert planned(trace) is None
    assert heading(trace) == "Last step 10 s · idle 20%"
    assert heading({**trace, "formula": 0.234}).endswith("idle 20%, by the formula of 1f1b 23%")
    assert remarks(trace) == "2 of 4 ranks shown"
    there = "2 of 4 ranks shown · clocks of hosts agree to 40 µs"
    assert remarks({**trace, "clock_error": 4e-5}) == there


def test_the_plan_has_no_messages_and_mean_times():
    plan = planned(step_of(*BY_HAND, schedule="1f1b"))
    assert plan is not None
    # Forward and backward take 2 s and 2 s on rank 0, 1 s and 2 s on rank 1. It begins at 1 s.
    expected = [
        (0, "F", 0, 0, 1.0, 3.0), (0, "F", 0, 1, 3.0, 5.0), (0, "B", 0, 0, 6.0, 8.0),
        (0, "B", 0, 1, 9.0, 11.0), (1, "F", 1, 0, 3.0, 4.0), (1, "B", 1, 0, 4.0, 6.0),
        (1, "F", 1, 1, 6.0, 7.0), (1, "B", 1, 1, 7.0, 9.0),
    ]  # fmt: skip
    for box, wanted in zip(boxes_of(plan), expected, strict=True):
        assert box[:4] == wanted[:4]
        assert box[4:] == pytest.approx(wanted[4:], abs=1e-3)
    assert plan["seconds"] == pytest.approx(10.0, abs=1e-3)
    assert plan["schedule"] == "1f1b"


@pytest.mark.parametrize("family", FAMILIES)
def test_a_step_that_went_as_planned_is_its_own_plan(family):
    trace = step_of_a_pipeline(family, ranks=4, micro_batches=8)
    plan = planned(trace)
    assert plan is not None
    assert [row["kinds"] for row in plan["rows"]] == [row["kinds"] for row in trace["rows"]]
    for row, measured in zip(plan["rows"], trace["rows"], strict=True):
        assert row["begins"] == pytest.approx(measured["begins"], abs=8)  # of 50,000 ticks
    assert idle(plan)["bubble"] == pytest.approx(idle(trace)["bubble"], abs=1e-3)


def test_the_first_stage_has_no_input_gradients():
    trace = step_of_a_pipeline("zb-h1", ranks=3, micro_batches=6)
    boxes = [box for box in boxes_of(trace) if (box.kind, box.stage) != ("I", 0)]
    plan = planned(step_of(*boxes, pipeline=3, ranks=3))
    assert plan is not None
    assert plan["rows"][0]["kinds"].count("W") == 6
    assert "I" not in plan["rows"][0]["kinds"]
    first = {(box.kind, box.number): box.begin for box in boxes_of(plan) if box.stage == 0}
    gradient = {box.number: box.end for box in boxes_of(plan) if box[1:3] == ("I", 1)}
    assert all(first["W", micro] >= gradient[micro] - 1e-6 for micro in range(6))


@pytest.mark.parametrize("strided", [False, True], ids=["pipeline", "replicas"])
def test_each_replica_has_a_plan_of_its_own(strided):
    quick = boxes_of(step_of_a_pipeline("1f1b", ranks=2, micro_batches=3))
    members = [[0, 2], [1, 3]] if strided else [[0, 1], [2, 3]]
    boxes = [
        box._replace(rank=ranks[box.rank], begin=slower * box.begin, end=slower * box.end)
        for ranks, slower in zip(members, (1.0, 2.0), strict=True)
        for box in quick
    ]
    plan = planned(step_of(*boxes, ranks=4))
    assert plan is not None
    ends = {box.rank: box.end for box in boxes_of(plan)}  # of the last box of each rank
    one, other = (max(ends[rank] for rank in ranks) for ranks in members)
    assert other == pytest.approx(2 * one, rel=1e-3)


def test_there_is_no_plan_where_ranks_have_no_row_nor_of_a_part_of_a_step():
    boxes = [box for box in BY_HAND if box.rank == 0]
    assert planned(step_of(*boxes)) is planned(step_of()) is None
    replicas = [*BY_HAND, *(box._replace(rank=box.rank + 2) for box in boxes)]
    assert planned(step_of(*replicas, ranks=4)) is None
    part = [box for box in BY_HAND if (box.rank, box.kind, box.number) != (0, "F", 1)]
    assert planned(step_of(*part)) is None


def test_an_evaluation_has_forwards_only():
    boxes = [box for box in BY_HAND if box.kind == "F"]
    plan = planned(step_of(*boxes))
    assert plan is not None
    assert [row["kinds"] for row in plan["rows"]] == ["FF", "FF"]
