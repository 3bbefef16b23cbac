"""Why ranks are idle, on timelines made by hand; seconds are whole numbers."""

import pytest

from tests.telemetry.by_hand import step_of
from tnt_notebook.telemetry.bubble import hidden, idle_of, messages_of
from tnt_notebook.telemetry.step_trace import Box, boxes

TICKS = 1e-3  # what rounding to ticks may move


# rank 0   F0 F0 F1 F1 .  .  .  B0 B0 .  B1 B1 .  .
# rank 1   .  .  .  F0 B0 B0 .  F1 B1 B1 .  .  .  .      rank 1 does half the work, and more
STEP = step_of(
    Box(0, "F", 0, 0, 0, 2), Box(0, "F", 0, 1, 2, 4), Box(0, "S", 1, 0, 2, 3),
    Box(0, "R", 1, 0, 4, 7), Box(0, "B", 0, 0, 7, 9), Box(0, "B", 0, 1, 10, 12),
    Box(1, "R", 0, 0, 0, 3), Box(1, "F", 1, 0, 3, 4), Box(1, "B", 1, 0, 4, 6),
    Box(1, "S", 0, 0, 6, 7), Box(0, "S", 1, 1, 4, 7), Box(1, "R", 0, 1, 6, 7),
    Box(1, "F", 1, 1, 7, 8), Box(1, "B", 1, 1, 8, 10), Box(1, "S", 0, 1, 9, 10),
)  # fmt: skip


def test_idle_time_has_a_reason():
    idle = idle_of(STEP)
    # Fill, drain, wait, imbalance, other.
    assert idle[0] == pytest.approx((0, 0, 3, 0, 1), abs=TICKS)
    # It works for 6 s and rank 0 for 8 s: it would wait for that in any case.
    assert idle[1] == pytest.approx((3, 2, 0, 1, 0), abs=TICKS)
    assert sum(idle[0]) == pytest.approx(12 - 8, abs=TICKS)
    assert sum(idle[1]) == pytest.approx(12 - 6, abs=TICKS)


def test_a_link_is_at_fault_from_when_the_message_is_under_way():
    # Rank 1 waits from 0 to 3 s, and the message left at 2 s; then from 6 to 7 s for one that left
    # before. Rank 0 waits from 4 to 7 s for one that left at 6 s.
    assert messages_of(STEP) == pytest.approx({(0, 1): 1 + 1, (1, 0): 1}, abs=TICKS)


def test_without_a_pipeline_nothing_is_idle():
    alone = step_of(Box(0, "C", 0, 0, 0, 2), Box(1, "C", 0, 0, 0, 3))
    assert idle_of(alone) == {} and messages_of(alone) == {}


def test_what_of_an_exchange_work_hides():
    step = step_of(
        Box(0, "C", 0, 0, 0, 6), Box(0, "X", 0, 0, 2, 4), Box(0, "X", 0, 1, 5, 8),
        Box(0, "X", 0, 2, 7, 9), Box(1, "C", 0, 0, 0, 9), Box(1, "X", 0, 0, 3, 9),
        Box(1, "O", 0, 0, 9, 10),
    )  # fmt: skip
    assert hidden(step) == pytest.approx({0: (2 + 1) / (2 + 4), 1: 1.0}, abs=TICKS)
    assert hidden(step_of(Box(0, "C", 0, 0, 0, 1))) == {}


def test_a_step_trace_keeps_its_boxes():
    forward, exchange = Box(0, "F", 0, 3, 1, 1.25), Box(2, "X", 0, 1, 1, 2)
    short = Box(2, "B", 5, 7, 1.5, 1.5000001)
    step = step_of(forward, short, exchange, time=7.0, pipeline=1, ranks=3)
    assert [row["rank"] for row in step["rows"]] == [0, 2]
    assert step["seconds"] == 1.0
    for box, was in zip(boxes(step), [forward, exchange, short], strict=True):
        assert box[:4] == was[:4]
        assert (box.begin, box.end) == pytest.approx((was.begin - 1, was.end - 1), abs=1e-5)
