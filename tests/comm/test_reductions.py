"""Allreduce, reduce and reduce-scatter, against NumPy on the inputs of all ranks."""

from __future__ import annotations

import numpy as np
import pytest

from tests.comm import sweep
from tests.comm.reference import FLOATS, RANKS, TYPES, assert_reduced, noise
from tnt_notebook import comm
from tnt_notebook.comm import schedules


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("n", RANKS)
def test_reductions_of_every_shape_by_every_algorithm(ranks, n, dtype):
    digests = ranks.run(n, sweep.reductions, dtype)
    assert len(set(digests)) == 1


def reductions_of_noise(dtype):
    return sweep.reductions(dtype, ((7,), (4097,), (30_001,)), noise)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("n", RANKS)
def test_results_have_the_same_bits_on_all_ranks_where_sums_round_or_wrap(ranks, n, dtype):
    digests = ranks.run(n, reductions_of_noise, dtype)
    assert len(set(digests)) == 1


def large_allreduces(count):
    """More than fits into a cache, and more than one message's worth."""
    w = comm.world()
    inputs = [np.arange(count, dtype="float32") % (rank + 5) for rank in range(w.size)]
    for algorithm in sweep.algorithms("allreduce", w):
        result = w.allreduce(inputs[w.rank], algorithm=algorithm)
        assert_reduced(result, inputs, "sum", f"by {algorithm}")


@pytest.mark.parametrize("n", [2, 4])
def test_large_arrays_by_every_algorithm(ranks, n):
    ranks.run(n, large_allreduces, 2_600_003)


def sums_of_views():
    w = comm.world()
    wide = [noise(rank, (40, 60), "float32") for rank in range(w.size)]
    views = {
        "transposed": lambda x: x.T,
        "every third row, backwards": lambda x: x[::-3],
        "a column": lambda x: x[:, 7],
        "one number of many": lambda x: np.broadcast_to(x[0, 0], (30, 5)),
    }
    for name, view in views.items():
        inputs = [view(x) for x in wide]
        own = inputs[w.rank]
        assert_reduced(w.allreduce(own), inputs, "sum", name)
        parts = [np.array_split(x, w.size)[w.rank] for x in inputs]
        assert_reduced(w.reduce_scatter(own), parts, "sum", name)
        np.testing.assert_array_equal(w.broadcast(own, w.size - 1), inputs[-1])
        np.testing.assert_array_equal(w.allgather(own), np.concatenate(inputs))
        output = np.empty(own.shape, own.dtype)
        assert_reduced(w.allreduce_into(output, own), inputs, "sum", name)


@pytest.mark.parametrize("n", RANKS)
def test_inputs_may_be_views_that_are_not_contiguous(ranks, n):
    ranks.run(n, sums_of_views)


def scaled(dtype):
    w = comm.world()
    scales = [0.5, 0.25, 0.0, 2.0][: w.size]
    inputs = [noise(rank, (5001,), dtype) for rank in range(w.size)]
    inputs[-1][:] = np.nan if scales[-1] == 0 else 1
    own, scale = inputs[w.rank], scales[w.rank]
    for algorithm in sweep.algorithms("allreduce", w):
        for op in ("sum", "max"):
            result = w.allreduce(own, op, scale, algorithm)
            into = w.allreduce_into(own.copy(), own, op, scale, algorithm)
            assert into.tobytes() == result.tobytes()
            assert_reduced(result, inputs, op, f"{op} by {algorithm}", scales)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("n", RANKS)
def test_each_rank_weighs_its_input_and_with_zero_even_nan_counts_as_zeros(ranks, n, dtype):
    ranks.run(n, scaled, dtype)


def mean_of_large_numbers():
    w = comm.world()
    large = np.full(9, 3e38, "float32")
    return [w.allreduce(large, "mean", algorithm=a) for a in sweep.algorithms("allreduce", w)]


def test_a_mean_does_not_overflow_where_the_sum_would(ranks):
    for results in ranks.run(4, mean_of_large_numbers):
        for result in results:
            np.testing.assert_allclose(result, 3e38, rtol=1e-6)


def chosen_algorithms():
    w = comm.world()
    # What has run is the newest exchange in the trace.
    found = {}
    for count in (1, 1 << 20):
        w.allreduce(np.ones(count, "float32"))
        found[count] = schedules.algorithm_name(int(w.trace()[-2]["algorithm"]))
        for name in sweep.algorithms("allreduce", w)[1:]:
            w.allreduce(np.ones(count, "float32"), algorithm=name)
            assert schedules.algorithm_name(int(w.trace()[-2]["algorithm"])) == name
    return found


def test_the_algorithm_that_is_asked_for_is_the_one_that_runs(ranks):
    for found in ranks.run(4, chosen_algorithms):
        assert found == {1: "direct", 1 << 20: "direct"}
