"""The best ways on fewer and on more ranks: which numbers, where speed levels off, and why."""

import itertools

import pytest

from tests.plan.test_best import outlook
from tnt_notebook.plan.best import ways
from tnt_notebook.plan.by_ranks import (
    held_back_by,
    levels_off,
    numbers_of_ranks,
    row_of,
)


def rows_of(*steps):
    """Of 1, 2, 4, ... ranks that have these steps of 8 samples: seconds of work and of the rest."""
    one_rank_s = sum(steps[0])
    return [
        {
            "ranks": 1 << n, "samples_per_s": 8 / (work + rest), "step_s": work + rest,
            "speedup": one_rank_s / (work + rest),
            "layers_s": work, "stages_s": 0.0, "exchange_s": 0.0, "overhead_s": rest,
        }
        for n, (work, rest) in enumerate(steps)
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("ranks", "most", "numbers"),
    [
        (1, None, [1, 2, 4]),
        (2, None, [1, 2, 4, 8]),
        (6, None, [1, 2, 4, 6, 12, 24]),
        (64, None, [1, 2, 4, 8, 16, 32, 64, 128, 256]),
        (8, 16, [1, 2, 4, 8, 16]),
        (100, None, [1, 2, 4, 8, 16, 32, 64, 100, 200, 400]),
        (200, None, [1, 4, 16, 64, 200, 800]),
        (65536, None, [1, 8, 64, 512, 4096, 32768, 65536, 262144]),
    ],
)
def test_numbers_of_ranks(ranks, most, numbers):
    assert numbers_of_ranks(ranks, most) == numbers


def test_speed_levels_off_where_no_doubling_is_worth_it():
    rows = rows_of((8, 1), (4, 1), (3.9, 1), (1, 1), (0.9, 1), (0.85, 1))
    assert levels_off(rows) == 3  # not 1, from where 4 times the ranks are worth them
    assert held_back_by(rows[3], rows[4]) == "overhead"
    assert held_back_by(*rows_of((8, 0), (8, 0.1))) == "layers"
    assert levels_off(rows_of((8, 0), (4, 0), (2, 0))) is None
    assert levels_off(rows_of((1, 0), (1, 0))) == 0
    assert levels_off(rows[:1]) is None
    assert levels_off(rows_of((1, 0), (2, 0), (1, 0))) == 0  # a gain that only makes up for a loss


@pytest.mark.parametrize("seed", range(5))
def test_parts_of_a_step_add_up(seed):
    one, among = outlook(seed)
    for way in among:
        plan = one.plan(way)
        row = row_of(plan)
        parts = [seconds for name, seconds in row.items() if name.endswith("_s")]
        work_to_other = sum(
            row[f"{part}_s"] for part in ("layers", "stages", "exchange", "overhead")
        )
        assert work_to_other == pytest.approx(plan.step_s) == row["step_s"]
        assert min(parts) > -1e-12 and row["ranks"] == plan.ranks * plan.replicas


def test_micro_batches_of_unknown_sizes_are_left_out():
    one, _ = outlook(1)
    every = list(itertools.islice(ways(4, one._batch_size, 2), 1000))
    asked = []

    def of_rows(rows):
        asked.append(rows)
        return False

    found = one.best(4, 1, of_rows)
    assert not found.found and found.there_are == 0 and len(asked) >= len(every)
