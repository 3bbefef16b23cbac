"""Collectives on NumPy arrays, on real ranks."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from tnt_notebook import comm

TYPES = ("float32", "float64", "bfloat16", "float16", "int32", "int64")
RANKS = (1, 2, 3, 4)


def input_of(rank: int, count: int, dtype: str) -> np.ndarray:
    numbers = np.random.default_rng([rank, count]).integers(-8, 9, count)
    return numbers.astype(ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype)


def reduce_all(counts, dtype, op):
    return [comm.world().allreduce(input_of(comm.rank(), n, dtype), op) for n in counts]


@pytest.mark.parametrize("op", ["sum", "min", "max"])
@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("n", RANKS)
def test_allreduce_is_the_reduction_of_all_inputs(ranks, n, dtype, op):
    counts = [0, 1, 3, 1000, 20_011]
    results = ranks.run(n, reduce_all, counts, dtype, op)
    reduce = {"sum": np.sum, "min": np.min, "max": np.max}[op]
    for i, count in enumerate(counts):
        # Small integers: sums are exact in every type.
        inputs = np.stack([input_of(r, count, dtype).astype("float64") for r in range(n)])
        expected = reduce(inputs, axis=0)
        for result in results:
            np.testing.assert_array_equal(result[i].astype("float64"), expected)


def scaled_sum(values):
    w = comm.world()
    return w.allreduce(np.array(values[w.rank]), scale=[0.5, 0.25, 0.0][w.rank])


def test_a_rank_with_scale_zero_contributes_nothing_even_if_it_holds_nan(ranks):
    for result in ranks.run(3, scaled_sum, [[2.0, 4.0], [4.0, 8.0], [np.nan, np.inf]]):
        np.testing.assert_array_equal(result, [2.0, 4.0])


def sums_of_noise(seed):
    noise = np.random.default_rng([seed, comm.rank()]).normal(size=30_001).astype("float32")
    return [comm.world().allreduce(noise[:n]).tobytes() for n in (7, 4097, 30_001)]


@pytest.mark.parametrize("n", RANKS)
def test_results_have_the_same_bits_on_all_ranks(ranks, n):
    results = ranks.run(n, sums_of_noise, 1)
    assert all(result == results[0] for result in results)


def broadcasts():
    w = comm.world()
    return [w.broadcast(np.arange(9.0).reshape(3, 3) * w.rank, root) for root in range(w.size)]


@pytest.mark.parametrize("n", RANKS)
def test_broadcast_brings_the_array_of_the_root(ranks, n):
    for result in ranks.run(n, broadcasts):
        for root, array in enumerate(result):
            np.testing.assert_array_equal(array, np.arange(9.0).reshape(3, 3) * root)


def gathers():
    w = comm.world()
    blocks = w.allgather_bytes(bytes([w.rank]) * 1000 * w.rank)
    return blocks, w.broadcast_bytes(b"r%d" % w.rank, root=w.size - 1)


@pytest.mark.parametrize("n", RANKS)
def test_allgather_keeps_rank_order_and_lengths(ranks, n):
    for blocks, message in ranks.run(n, gathers):
        assert blocks == [bytes([r]) * 1000 * r for r in range(n)]
        assert message == b"r%d" % (n - 1)


def repeat(times):
    w = comm.world()
    for i in range(times):
        assert w.allreduce(np.array([i, w.rank]))[0] == i * w.size
        w.barrier()


def test_a_thousand_collectives_in_a_row(ranks):
    ranks.run(4, repeat, 1000)
