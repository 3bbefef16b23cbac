"""NaN, infinities, zeros with a sign, and numbers at the ends of their type."""

import itertools

import ml_dtypes
import numpy as np
import pytest

from tests.comm.calls import algorithms
from tests.comm.reference import FLOATS, dtype_of, reduced
from tnt_notebook import comm

SPECIAL = (np.nan, np.inf, -np.inf, -0.0, 0.0, 1.0, -2.0)


def combinations(dtype: str, size: int) -> list[np.ndarray]:
    """Every combination of special numbers, as the inputs of so many ranks."""
    return list(np.array(list(itertools.product(SPECIAL, repeat=size))).T.astype(dtype_of(dtype)))


def reductions_of_special_numbers(dtype):
    w = comm.world()
    inputs = combinations(dtype, w.size)
    bits = []
    for op in ("sum", "min", "max", "product"):
        for algorithm in algorithms("allreduce", w):
            result = w.allreduce(inputs[w.rank], op, algorithm=algorithm)
            np.testing.assert_array_equal(
                result.astype("float64"), reduced(inputs, op), f"{op} by {algorithm}"
            )
            bits.append(result.tobytes())
    return bits


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("n", [2, 3, 4])
def test_special_numbers_are_reduced_as_by_numpy_with_the_same_bits_on_all_ranks(ranks, n, dtype):
    first, *others = ranks.run(n, reductions_of_special_numbers, dtype)
    assert all(bits == first for bits in others)
    # Nor do the bits depend on the algorithm.
    algorithms = len(first) // 4
    for i in range(4):
        assert len(set(first[i * algorithms : (i + 1) * algorithms])) == 1


def signs_of_zeros():
    w = comm.world()
    minus, mixed = np.array(-0.0), np.array(-0.0 if w.rank else 0.0)
    return [
        (
            bool(np.signbit(w.allreduce(minus, algorithm=a))),
            bool(np.signbit(w.allreduce(mixed, algorithm=a))),
        )
        for a in algorithms("allreduce", w)
    ]


@pytest.mark.parametrize("n", [2, 3, 4])
def test_a_sum_of_zeros_is_negative_only_if_all_are(ranks, n):
    for signs in ranks.run(n, signs_of_zeros):
        assert set(signs) == {(True, False)}


def payloads():
    """A NaN with a payload of the rank's own, moved and summed."""
    w = comm.world()
    bits = np.array([0x7FC00000 + 17 * (w.rank + 1)], "uint32")
    moved = w.broadcast(bits.view("float32"), w.size - 1).view("uint32")
    summed = [
        int(w.allreduce(bits.view("float32"), algorithm=a).view("uint32")[0])
        for a in algorithms("allreduce", w)
    ]
    return int(moved[0]), summed


def test_a_moved_nan_keeps_its_bits_and_a_summed_one_is_the_same_on_all_ranks(ranks):
    outcomes = ranks.run(3, payloads)
    assert {moved for moved, _ in outcomes} == {0x7FC00000 + 17 * 3}
    assert len({number for _, summed in outcomes for number in summed}) == 1


def at_the_ends(dtype):
    w = comm.world()
    finfo = ml_dtypes.finfo(dtype_of(dtype))
    smallest = np.array([finfo.smallest_subnormal], dtype_of(dtype))
    largest = np.array([finfo.max], dtype_of(dtype))
    for algorithm in algorithms("allreduce", w):
        assert w.allreduce(smallest, algorithm=algorithm)[0] == w.size * smallest[0]
        assert w.allreduce(largest, algorithm=algorithm)[0] == np.inf
        assert w.allreduce(largest, "max", algorithm=algorithm)[0] == largest[0]
        assert w.allreduce(smallest, "min", algorithm=algorithm)[0] == smallest[0]


@pytest.mark.parametrize("dtype", FLOATS)
def test_subnormal_numbers_are_kept_and_sums_beyond_the_type_are_infinite(ranks, dtype):
    ranks.run(4, at_the_ends, dtype)
