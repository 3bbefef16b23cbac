"""Where the time of steps went, against timelines counted by hand."""

import pytest

from tests.telemetry.by_hand import events
from tnt_notebook.telemetry.breakdown import Breakdown, mean, of_steps
from tnt_notebook.telemetry.events import NOT_TRAINING


def broken_down(*rows, **options):
    return [tuple(round(1e9 * s) for s in b) for b in of_steps(events(*rows), **options)]


def test_data_parallel():
    assert broken_down(
        ("input", 105, 125),
        ("copy_in", 150, 152), ("exchange", 152, 170), ("copy_out", 170, 171),  # while it works
        ("ready", 150, 150), ("ready", 180, 180),
        ("copy_in", 180, 182), ("exchange", 182, 190), ("copy_out", 190, 191),
        ("step", 100, 200),
    ) == [(20, 55, 0, 11, 14)]  # fmt: skip


def test_an_exchange_that_began_earlier_counts_from_where_there_is_nothing_else_to_do():
    assert broken_down(
        ("input", 100, 100), ("ready", 110, 110), ("exchange", 110, 160), ("ready", 150, 150),
        ("exchange", 152, 155), ("copy_out", 160, 162), ("step", 100, 170),
    ) == [(0, 50, 0, 12, 8)]  # fmt: skip


def test_one_rank_alone_has_no_exchange():
    assert broken_down(("input", 100, 110), ("step", 100, 200)) == [(10, 90, 0, 0, 0)]


def test_a_pipeline():
    stage = 1 << 16
    rows = (
        ("input", 100, 104),
        ("forward", 110, 120, stage), ("forward", 120, 130, stage | 1),
        ("backward", 140, 160, stage), ("backward", 165, 185, stage | 1),
        ("exchange", 190, 195, 2000),  # of gradients, between replicas
        ("exchange", 185, 198, 1024),  # of metrics: waits for ranks that still work
        ("step", 100, 200),
    )  # fmt: skip
    # 6 before the first forward, 10 and 5 between, and the metrics.
    assert broken_down(*rows, gradients_from=1088) == [(4, 60, 6 + 10 + 5 + 13, 5, 0)]


def test_evaluation_is_no_work_of_a_step():
    rows = ("input", 100, 110), ("forward", 120, 130, NOT_TRAINING), ("step", 100, 200)
    assert broken_down(*rows) == [(10, 90, 0, 0, 0)]


def test_steps_of_which_the_trace_has_forgotten_parts_are_left_out():
    made = events(("ready", 150, 150), ("step", 100, 200), ("input", 210, 220), ("step", 205, 300))
    assert [round(1e9 * b.step) for b in of_steps(made)] == [100, 95]
    assert [round(1e9 * b.step) for b in of_steps(made, forgotten=True)] == [95]
    assert of_steps(made, phase=1) == []
    assert of_steps(events()) == []


def test_the_mean_step():
    assert mean([Breakdown(1, 2, 3, 4, 5), Breakdown(3, 2, 1, 0, 5)]) == (2, 2, 2, 2, 5)
    assert mean([Breakdown(1, 2, 3, 4, 5)]).step == pytest.approx(15)
