"""What a loader's measurement means: its limit, ranks that it feeds, shares of its parts."""

import math

import pytest

from tnt_notebook.plan.loading import (
    BANDWIDTH,
    CALLS,
    CPU,
    LATENCY,
    PYTHON,
    STORAGE,
    fed,
    limit_of,
    own_row,
    row_of,
)  # fmt: skip


@pytest.mark.parametrize(
    ("busy", "full", "waiting", "in_python", "limit"),
    [
        (0.9, 0.95, 0.9, False, BANDWIDTH),  # the cores are busy as well, for what comes
        (0.95, 0.0, 0.3, False, CPU),
        (0.3, 0.2, 0.8, False, LATENCY),
        (1.0, 0.2, 0.8, False, LATENCY),  # the cores are busy with other things
        (0.3, 0.0, 0.0, True, PYTHON),
        (0.3, 0.0, 0.0, False, CALLS),
    ],
)
def test_the_first_that_is_used_up_limits(busy, full, waiting, in_python, limit):
    assert limit_of(busy, full, waiting, in_python) == limit


@pytest.mark.parametrize(
    ("rate", "need", "ranks", "feeds"),
    [(3000, 8000, 8, 3), (8000, 8000, 8, 8), (99e6, 8000, 8, 8), (900, 8000, 8, 0)],
)
def test_ranks_that_get_all_they_consume(rate, need, ranks, feeds):
    assert fed(rate, need, ranks) == feeds
    assert fed(rate, None, ranks) is None


def of_a_rank(samples: float, **more: float) -> dict[str, float]:
    idle = {"bytes": 0.0, "cpu_s": 0.0, "queued_s": 0.0, "waited_s": 0.0, "first_s": 0.1}
    return {"samples": samples, "seconds": 2.0, **idle, **more}


def test_ranks_add_up():
    case = {"format": "jpeg", "storage": "throttled", "calls": 4, "prefetch": 2}
    ranks = [of_a_rank(100, bytes=4e6, waited_s=6.0), of_a_rank(300, bytes=12e6, waited_s=6.0)]
    row = row_of(case, ranks, 4, 100e6, 4)
    assert row["rank_samples_per_s"] == [50, 150] and row["samples_per_s"] == 200
    assert row["bytes_per_s"] == 8e6 and row["waiting"] == 0.75 and row["limit"] == LATENCY
    # What the cores did for others while we wanted them counts as used: they are not free.
    busy = [of_a_rank(100, cpu_s=1.0, queued_s=0.8) for _ in range(2)]
    assert row_of({**case, "storage": "local"}, busy, 2, math.inf, 4)["limit"] == CPU


def test_parts_of_ones_own_are_what_each_adds():
    parts = [{"part": "read", "until_s": 3e-3}, {"part": "map", "until_s": 9e-3},
             {"part": "batch", "until_s": 8e-3}]  # fmt: skip
    row = own_row("train", "tf.data", "", [of_a_rank(200)] * 2, parts, 2, 1, 2)
    assert [part["share"] for part in row["parts"]] == pytest.approx([1 / 3, 2 / 3, 0])
    assert row["samples_per_s"] == 200 and row["limit"] == CALLS
    slow_read = own_row("train", "tf.data", "", [of_a_rank(9)], [*parts[:1]], 2, None, 1)
    assert slow_read["limit"] == STORAGE
    assert own_row("train", "PyDataset", "", [of_a_rank(9)], [], 2, None, 1)["limit"] == PYTHON
    # Two ranks of one pipeline read the same batches.
    assert own_row("train", "tf.data", "", [of_a_rank(9)] * 2, [], 2, 1, 1)["samples_per_s"] == 4.5
