"""The chain of boxes that a step waited for."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.dashboard.steps import step_of_a_pipeline
from tnt_notebook.plan.families import FAMILIES
from tnt_notebook.telemetry.critical_path import critical_path
from tnt_notebook.telemetry.step_trace import Box, StepTrace, by_rank, of_boxes


def path_of(trace: StepTrace) -> list[Box]:
    rows = list(by_rank(trace).values())
    return [rows[row][number] for row, number in critical_path(trace)]


@pytest.mark.parametrize("schedule", sorted(FAMILIES))
@pytest.mark.parametrize(("message", "noise"), [(0.0, 0.5), (3e-4, 0.0)])
def test_it_leads_from_the_begin_to_the_end_without_a_gap(schedule, message, noise):
    trace = step_of_a_pipeline(schedule, message=message, noise=noise)
    path = path_of(trace)
    assert path[0].begin == pytest.approx(0.0, abs=1e-5) and path[0].kind == "F"
    assert path[-1].end == pytest.approx(trace["seconds"], abs=1e-5)
    hops = 0
    for one, other in pairwise(path):
        hop = one.rank != other.rank
        hops += hop
        assert one.end <= other.begin + 1e-5
        assert other.begin - one.end <= (message if hop else 0.0) + 2e-3 * trace["seconds"]
    assert hops >= 3  # to the last rank at least
    in_all = sum(box.end - box.begin for box in path) + hops * message
    assert in_all == pytest.approx(trace["seconds"], rel=0.05)


@given(st.permutations([2.0, 3.0, 4.0, 5.0]), st.integers(0, 3))
def test_the_rank_that_others_wait_for_holds_the_path(works, ends_last):
    """An exchange begins on all ranks when the last has come; those before it wait until then."""
    last, slowest = works.index(5.0), 5.0
    boxes = []
    for rank, work in enumerate(works):
        boxes += [Box(rank, "D", 0, 0, 0.0, 0.1), Box(rank, "C", 0, 0, 0.1, work)]
        boxes += [Box(rank, "L", last, 0, work, slowest)] * (rank != last)
        boxes += [
            Box(rank, "X", 0, 0, slowest, 6.0), Box(rank, "O", 0, 0, 6.0, 6.5 + (rank == ends_last))
        ]  # fmt: skip
    trace = of_boxes(boxes, time=0.0, clock_error=0.0, pipeline=1, ranks=4)
    path = [(box.rank, box.kind) for box in path_of(trace)]
    assert path == [(last, "D"), (last, "C"), (ends_last, "O")]


def test_where_no_rank_waits_the_last_to_begin_an_exchange_holds_the_path():
    boxes = []
    for rank, work in enumerate((2.0, 2.001, 1.999)):
        boxes += [
            Box(rank, "C", 0, 0, 0.0, work), Box(rank, "X", 0, 0, work, 6.0),
            Box(rank, "O", 0, 0, 6.0, 6.5 + 0.1 * rank),
        ]  # fmt: skip
    trace = of_boxes(boxes, time=0.0, clock_error=0.0, pipeline=1, ranks=3)
    assert [(box.rank, box.kind) for box in path_of(trace)] == [(1, "C"), (2, "O")]


def test_a_step_without_boxes_has_none():
    assert path_of(of_boxes([], time=0.0, clock_error=0.0, pipeline=1, ranks=2)) == []
