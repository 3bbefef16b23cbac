"""Broadcast, allgather, alltoall and the small calls keep every bit and the order of ranks."""

from __future__ import annotations

import pytest

from tests.comm import sweep
from tests.comm.reference import RANKS, TYPES


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("n", RANKS)
def test_movements_of_every_shape_by_every_algorithm(ranks, n, dtype):
    digests = ranks.run(n, sweep.movements, dtype)
    assert len(set(digests)) == 1


@pytest.mark.parametrize("n", RANKS)
def test_numbers_and_bytes_of_any_length_arrive_in_rank_order(ranks, n):
    ranks.run(n, sweep.small_calls)
