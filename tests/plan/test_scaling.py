"""What is expected of more ranks."""

import math

import pytest

from tnt_notebook.plan.network import Link
from tnt_notebook.plan.scaling import BUCKET, expected_step_s, ranks_of_a_core

PARTS = {"input": 0.01, "work": 0.06, "wait": 0.0, "skew": 0.0, "exchange": 0.0, "other": 0.03}
FREE = Link(0.0, math.inf)


def test_on_the_same_ranks_a_step_is_what_it_was():
    assert expected_step_s(0.1, PARTS, 1, 1, 1 << 20, None) == pytest.approx(0.1)
    assert expected_step_s(0.2, PARTS, 1, 1, 1 << 20, FREE) == pytest.approx(0.2)
    assert expected_step_s(0.2, {}, 1, 1, 1 << 20, None) == pytest.approx(0.2)


def test_work_and_input_shrink_and_the_rest_stays():
    assert expected_step_s(0.1, PARTS, 0.5, 0.5, 0, FREE) == pytest.approx(0.005 + 0.03 + 0.03)
    assert expected_step_s(0.1, PARTS, 0.5, 1.0, 0, FREE) == pytest.approx(0.01 + 0.03 + 0.03)
    assert expected_step_s(0.1, {}, 0.5, 0.5, 0, None) == pytest.approx(0.05)
    crowded = expected_step_s(0.1, PARTS, 0.5, 0.5, 0, None, oversubscription=2.0)
    assert crowded == pytest.approx(0.005 + 0.06 + 0.06)


def test_an_exchange_is_hidden_behind_backward_but_for_its_last_bucket():
    fast, slow = Link(1e-6, 1e12), Link(1e-3, 1e9)
    idle = expected_step_s(0.1, PARTS, 0.5, 0.5, 0, None)
    count = 10 * BUCKET
    assert expected_step_s(0.1, PARTS, 0.5, 0.5, count, fast) < idle + 1e-5
    # 42 ms and ten latencies, of which 20 ms of backward hide as much.
    late = expected_step_s(0.1, PARTS, 0.5, 0.5, count, slow) - idle
    assert late == pytest.approx(count / 1e9 + 10e-3 - 0.02)
    # One small bucket is the last one.
    assert expected_step_s(0.1, PARTS, 0.5, 0.5, 4000, slow) - idle == pytest.approx(1e-3 + 4e-6)


def test_ranks_that_share_cores():
    assert ranks_of_a_core(["a", "a", "b"], [[0, 1], [2, 3], [0, 1]]) == 1.0
    assert ranks_of_a_core(["a"] * 4, [[0], [1], [0], [1]]) == 2.0
    assert ranks_of_a_core(["a", "b", "b"], [[0], [0], [0]]) == 2.0
    assert ranks_of_a_core([], []) == 1.0
