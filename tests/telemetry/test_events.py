"""What the events of the backend say of communication, against intervals counted by hand."""

import numpy as np
import pytest

from tests.telemetry.by_hand import events
from tnt_notebook.comm import _kernels
from tnt_notebook.telemetry.events import EVENT_KINDS, under_way, union_s


@pytest.mark.parametrize(
    ("intervals", "covered"),
    [
        ([], 0),
        ([(5, 8)], 3),
        ([(5, 8), (8, 9)], 4),
        ([(5, 8), (6, 7)], 3),  # one within the other
        ([(6, 7), (5, 8), (20, 21)], 4),  # not in order
        ([(0, 10), (1, 2), (9, 12), (3, 4)], 12),
    ],
)
def test_time_that_several_intervals_cover_counts_once(intervals, covered):
    begin = np.array([b for b, _ in intervals], np.uint64)
    end = np.array([e for _, e in intervals], np.uint64)
    assert union_s(begin, end) == pytest.approx(covered * 1e-9)


def test_steps_and_the_readiness_of_buckets_are_no_communication():
    trace = events(("step", 0, 100), ("ready", 10, 10), ("copy_in", 10, 12), ("exchange", 12, 20),
                   ("copy_out", 20, 21), ("exchange", 15, 30))  # fmt: skip
    assert under_way(trace) == pytest.approx(20e-9)
    assert under_way(trace, since_ns=13) == pytest.approx(15e-9)


def test_the_backend_records_the_kinds_of_events_that_python_knows():
    assert _kernels.event_kinds == EVENT_KINDS
