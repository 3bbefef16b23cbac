"""Where the time of a step went, against timelines counted by hand."""

import numpy as np
import pytest

from tests.telemetry.by_hand import events
from tnt_notebook.telemetry.breakdown import Breakdown, mean, of_step
from tnt_notebook.telemetry.collectives import arrivals, collectives, with_last
from tnt_notebook.telemetry.conversions import Conversion
from tnt_notebook.telemetry.events import NOT_TRAINING


def exchanged(channel, begin, end):
    """What the backend records of a collective, whose messages take all of the time."""
    between = (begin, begin), (begin, end), (end, end)
    kinds = "copy_in", "exchange", "copy_out"
    return [(kind, *times, channel) for kind, times in zip(kinds, between, strict=True)]


def broken_down(*rows, others=(), begin_ns=None, **options):
    """In nanoseconds, of the last of the events; `others` are the arrivals of another rank."""
    made = events(*rows)
    own = collectives(made, rank=0)
    theirs = np.zeros(len(others), own.dtype)
    for row, (channel, begin) in zip(theirs, others, strict=True):
        row["key"], row["begin_ns"] = channel << 16, begin
    own = with_last(own, [arrivals(own), arrivals(theirs)])
    found = of_step(made, made[-1], own, begin_ns=begin_ns, **options)
    return tuple(round(1e9 * seconds) for seconds in found[: None if "converted" in options else 6])


DATA_PARALLEL = (
    ("input", 105, 125),
    *exchanged(5, 150, 171),  # while it works
    ("ready", 150, 150), ("ready", 180, 180),
    *exchanged(6, 180, 191),
    ("step", 100, 200),
)  # fmt: skip


def test_data_parallel():
    assert broken_down(*DATA_PARALLEL) == (20, 55, 0, 0, 11, 14)


def test_conversions_are_no_work():
    # Two that overlap, one of which began before there was input; the last is after all is done.
    spans = [(120, 140), (135, 150), (185, 190)]
    converted = [Conversion("gather for dense", *span) for span in spans]
    found = broken_down(*DATA_PARALLEL, converted=converted)
    assert found == (20, 55 - 25, 0, 0, 11, 14, 25)


def test_waiting_for_a_rank_that_comes_late_is_no_exchange():
    # The first is hidden behind work in any case; at the second this rank waits for 7 of 11.
    assert broken_down(*DATA_PARALLEL, others=[(5, 169), (6, 187)]) == (20, 55, 0, 7, 4, 14)
    # A rank that comes sooner is not waited for.
    assert broken_down(*DATA_PARALLEL, others=[(5, 120), (6, 150)]) == (20, 55, 0, 0, 11, 14)


def test_what_a_rank_does_since_the_step_before_is_of_the_step():
    assert broken_down(*DATA_PARALLEL, begin_ns=90) == (20, 55, 0, 0, 11, 24)
    # Such as waiting for the callbacks of another rank.
    waits = exchanged(0, 70, 95)
    assert broken_down(*waits, *DATA_PARALLEL, others=[(0, 92)], begin_ns=65) == (
        20, 55, 0, 22, 3 + 11, 14 + 10,
    )  # fmt: skip


def test_an_exchange_that_began_earlier_counts_from_where_there_is_nothing_else_to_do():
    assert broken_down(
        ("input", 100, 100), ("ready", 110, 110), *exchanged(5, 110, 162), ("ready", 150, 150),
        *exchanged(6, 152, 155), ("step", 100, 170),
    ) == (0, 50, 0, 0, 12, 8)  # fmt: skip


def test_one_rank_alone_has_no_exchange():
    assert broken_down(("input", 100, 110), ("step", 100, 200)) == (10, 90, 0, 0, 0, 0)


def test_waiting_for_weights_of_other_ranks_is_exchange():
    assert broken_down(
        ("input", 100, 110), ("ready", 150, 150), ("optimizer", 150, 160), ("answer", 160, 190),
        ("step", 100, 200),
    ) == (10, 40, 0, 0, 30, 20)  # fmt: skip


def test_a_pipeline():
    stage = 1 << 16
    rows = (
        ("input", 100, 104),
        ("forward", 110, 120, stage), ("forward", 120, 130, stage | 1),
        ("backward", 140, 160, stage), ("backward", 165, 185, stage | 1),
        *exchanged(2000, 190, 195),  # of gradients, between replicas
        *exchanged(1024, 185, 198),  # of metrics: waits for ranks that still work
        ("step", 100, 200),
    )  # fmt: skip
    # 6 before the first forward, 10 and 5 between, and the metrics.
    expected = (4, 60, 6 + 10 + 5 + 13, 0, 5, 0)
    assert broken_down(*rows, gradients_from=1088) == expected
    expected = (4, 60, 6 + 10 + 5 + 13, 3, 2, 0)
    assert broken_down(*rows, gradients_from=1088, others=[(2000, 193)]) == expected


def test_several_steps_of_one_execution_count_each():
    assert broken_down(
        ("input", 100, 110), ("ready", 150, 150), *exchanged(5, 150, 160), ("optimizer", 160, 170),
        ("input", 175, 180), ("ready", 200, 200), *exchanged(5, 200, 208), ("optimizer", 208, 215),
        ("step", 100, 220),
    ) == (10 + 5, 40 + 20, 0, 0, 10 + 8, 120 - 15 - 60 - 18)  # fmt: skip


def test_evaluation_is_no_work_of_a_step():
    rows = ("input", 100, 110), ("forward", 120, 130, NOT_TRAINING), ("step", 100, 200)
    assert broken_down(*rows) == (10, 90, 0, 0, 0, 0)


def test_the_mean_of_ranks():
    assert mean([Breakdown(1, 2, 3, 1, 4, 5), Breakdown(3, 2, 1, 1, 0, 5)]) == Breakdown(
        2, 2, 2, 1, 2, 5
    )
    assert mean([Breakdown(1, 2, 3, 0, 4, 5)]).step == pytest.approx(15)
