"""Every collective by every algorithm: of every shape and dtype, over every kind of link."""

import numpy as np
import pytest

from tests.comm.calls import SHAPES, algorithms, digest_of, everything, small_calls, sweep
from tests.comm.reference import FLOATS, RANKS, TYPES, assert_reduced, noise
from tnt_notebook import comm
from tnt_notebook.comm import _kernels

WORLDS = [
    (2, {"transport": "mpi"}), (3, {"transport": "mpi"}), (4, {"transport": "mpi"}),
    (4, {"transport": "mpi", "lanes": 3}), (3, {"transport": "shm", "lanes": 4}),
    (4, {"nodes": (0, 0, 1, 1)}), (4, {"nodes": (0, 1, 0, 1)}), (4, {"nodes": (0, 0, 0, 1)}),
    (4, {"nodes": (2, 1, 1, 0), "lanes": 2}), (3, {"nodes": (1, 0, 1)}), (3, {"link_mbit": 1e4}),
]  # fmt: skip


def of_every_shape(dtype):
    return digest_of(sweep(dtype, SHAPES, comm.world()))


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("n", RANKS)
def test_every_shape_and_dtype_with_the_same_bits_on_all_ranks(ranks, n, dtype):
    assert len(set(ranks.run(n, of_every_shape, dtype))) == 1


@pytest.mark.parametrize(("n", "world"), WORLDS, ids=str)
def test_every_kind_of_link(ranks, n, world):
    assert len(set(ranks.run(n, everything, world=world))) == 1


@pytest.mark.parametrize("n", RANKS)
def test_numbers_and_bytes_of_any_length_arrive_in_rank_order(ranks, n):
    ranks.run(n, small_calls)


def large_allreduces(count):
    """More than fits into a cache, and more than one message's worth."""
    w = comm.world()
    inputs = [np.arange(count, dtype="float32") % (rank + 5) for rank in range(w.size)]
    for algorithm in algorithms("allreduce", w):
        result = w.allreduce(inputs[w.rank], algorithm=algorithm)
        assert_reduced(result, inputs, "sum", f"by {algorithm}")


@pytest.mark.parametrize("n", [2, 4])
def test_large_arrays_by_every_algorithm(ranks, n):
    ranks.run(n, large_allreduces, 2_600_003)


def scaled(dtype):
    w = comm.world()
    scales = [0.5, 0.25, 0.0, 2.0][: w.size]
    inputs = [noise(rank, (5001,), dtype) for rank in range(w.size)]
    inputs[-1][:] = np.nan if scales[-1] == 0 else 1
    own, scale = inputs[w.rank], scales[w.rank]
    for algorithm in algorithms("allreduce", w):
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
    return [w.allreduce(large, "mean", algorithm=a) for a in algorithms("allreduce", w)]


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
        found[count] = _kernels.algorithms()[w.trace()[-2]["algorithm"]][1]
        for name in algorithms("allreduce", w)[1:]:
            w.allreduce(np.ones(count, "float32"), algorithm=name)
            assert _kernels.algorithms()[w.trace()[-2]["algorithm"]][1] == name
    return found


def test_the_algorithm_that_is_asked_for_is_the_one_that_runs(ranks):
    for found in ranks.run(4, chosen_algorithms):
        assert found == {1: "direct", 1 << 20: "direct"}
