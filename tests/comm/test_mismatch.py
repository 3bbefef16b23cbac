"""Ranks that make different calls: all of them raise, and the error names both operations."""

import os
import time
from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.comm import functions
from tests.comm.reference import TYPES, dtype_of
from tests.support.cases import latin
from tnt_notebook import comm
from tnt_notebook.errors import CommunicationError, PeerError


def call(name, *shape, dtype="float32", **options):
    """A collective on ones."""
    return lambda w: getattr(w, name)(np.ones(shape, dtype), **options)


allreduce, reduce_scatter = partial(call, "allreduce"), partial(call, "reduce_scatter")
allgather, alltoall = partial(call, "allgather"), partial(call, "alltoall")
broadcast, reduce = partial(call, "broadcast", 8), partial(call, "reduce", 8)


def in_turn(*calls):
    return lambda w: [call(w) for call in calls]


def group_of(count):
    return lambda w: allreduce(count)(w.split(0))


def bucket_of(count):
    return lambda w: w.bucket(count).allreduce()


OWN, OTHER = functions.exchange, functions.exchange_backwards

#: What the others call, what one rank calls, and what the error has to say on every rank.
CASES = {
    "size": (allreduce(10), allreduce(15), ["(sum) of 10 float32", "(sum) of 15 float32"]),
    "large size": (allreduce(8192), allreduce(16384), ["of 8192 float32", "of 16384 float32"]),
    "dtype": (allreduce(8), allreduce(8, dtype="float64"), ["of 8 float32", "of 8 float64"]),
    "dtype of the same width": (
        allreduce(8), allreduce(8, dtype="int32"), ["of 8 float32", "of 8 int32"]
    ),
    "op": (
        allreduce(8), allreduce(8, op="max"),
        ["allreduce (sum) of 8 float32", "allreduce (max) of 8 float32"],
    ),
    "algorithm": (
        allreduce(8, algorithm="ring"), allreduce(8, algorithm="recursive_doubling"),
        ["of 8 float32 by ring", "of 8 float32 by recursive_doubling"],
    ),
    "a function instead of an algorithm": (
        allreduce(8, algorithm="ring"), allreduce(8, algorithm=OWN),
        ["of 8 float32 by ring", "of 8 float32 by a schedule of its own"],
    ),
    "another function, of the same messages": (
        allreduce(8, algorithm=OWN), allreduce(8, algorithm=OTHER),
        ["of 8 float32 by a schedule of its own that another function makes"],
    ),
    "collective": (
        allreduce(8), reduce_scatter(8), ["allreduce (sum) of 8", "reduce_scatter (sum)"]
    ),
    "a collective instead of a barrier": (
        lambda w: w.barrier(), allreduce(8), ["barrier", "allreduce (sum) of 8 float32"]
    ),
    "rows of a reduce_scatter": (
        reduce_scatter(10), reduce_scatter(11),
        ["reduce_scatter (sum) of 10", "reduce_scatter (sum) of 11"],
    ),
    "cut of a reduce_scatter": (
        reduce_scatter(4, 3), reduce_scatter(3, 4), ["reduce_scatter (sum) of 12 float32"]
    ),
    # It says how many elements in all, which depends on the number of ranks.
    "width of an allgather": (allgather(2, 3), allgather(2, 4), ["allgather of"]),
    "size of an alltoall": (
        lambda w: alltoall(w.size)(w), lambda w: alltoall(3 * w.size)(w),
        ["alltoall of 1 float32", "alltoall of 3 float32"],
    ),
    # Who has sent or received all may be in the next call, and be found there.
    "root of a broadcast": (broadcast(root=0), broadcast(root=1), []),
    "root of a reduce": (reduce(root=0), reduce(root=1), []),
    "order": (
        in_turn(allreduce(3), allreduce(5)), in_turn(allreduce(5), allreduce(3)),
        ["of 3 float32", "of 5 float32"],
    ),
    "one call left out": (
        in_turn(allreduce(3), allgather(2)), allgather(2),
        ["allreduce (sum) of 3 float32", "allgather"],
    ),
    "in a group": (group_of(7), group_of(9), ["of 7 float32", "of 9 float32"]),
    "in a bucket": (bucket_of(7), bucket_of(9), ["of 7 float32", "of 9 float32"]),
}  # fmt: skip

#: Each rank may wait for one that waits for it, with no message that would tell: then time is up.
WITHOUT_A_MESSAGE = ("root of a broadcast", "root of a reduce", "one call left out")
TIMEOUT_S = 1


def deviate(case, deviant, times=1):
    """Makes a rank's call; gives what was raised each time, and how long that took."""
    usual, other, _ = CASES[case]
    return [in_disagreement(other if comm.rank() == deviant else usual) for _ in range(times)]


def in_disagreement(call):
    w = comm.world()
    began, text = time.monotonic(), ""
    w.set_timeout(TIMEOUT_S)
    try:
        call(w)
        # Who could finish hears of it in what comes next.
        w.barrier()
        w.barrier()
    except (PeerError, CommunicationError) as error:
        text = str(error)
    seconds = time.monotonic() - began
    w.set_timeout(60)
    w.recover()
    total = w.allreduce(np.arange(5000) + w.rank)
    np.testing.assert_array_equal(total, w.size * np.arange(5000) + sum(range(w.size)))
    w.recover()  # nobody disagrees again before all have seen that
    return text, seconds


def check(outcomes, words, may_wait=False):
    for rank, (text, seconds) in enumerate(outcomes):
        if may_wait and f"waited {TIMEOUT_S} s for rank " in text:
            assert seconds < TIMEOUT_S + 5
            continue
        assert "is in another operation: here " in text, f"rank {rank}: {text!r}"
        assert all(word in text for word in words), f"rank {rank}: {text!r}"
        assert seconds < 5


OVER_MPI = {"transport": "mpi"}
DEVIANTS = [(0, None), (-1, OVER_MPI), (-1, None), (0, OVER_MPI)]


@pytest.mark.parametrize(("case", "deviates", "n"), latin(CASES, DEVIANTS, (2, 3, 4), times=2))
def test_all_ranks_raise_an_error_that_names_both_operations(ranks, case, deviates, n):
    deviant, world = deviates
    per_rank = ranks.run(n, deviate, case, deviant % n, world=world)
    check([once for (once,) in per_rank], CASES[case][2], case in WITHOUT_A_MESSAGE)


@pytest.mark.parametrize(
    ("case", "world"), latin(["large size", "op", "order"], [None, OVER_MPI, {"nodes": (0, 0, 1)}])
)
def test_two_hundred_disagreements_in_a_row(ranks, case, world):
    per_rank = ranks.run(3, deviate, case, 1, 200, world=world)
    for outcomes in zip(*per_rank, strict=True):
        check(outcomes, CASES[case][2])


def of_sizes(counts, dtypes):
    w = comm.world()
    mine = min(w.rank, 1)
    array = np.ones(counts[mine], dtype_of(dtypes[mine]))
    return in_disagreement(lambda w: w.allreduce(array))


operations = st.tuples(
    st.integers(0, 40_000) | st.sampled_from([0, 1, 2048, 4096, 8192]), st.sampled_from(TYPES)
)


@settings(max_examples=60, derandomize="CI" in os.environ)
@given(st.integers(2, 4), operations, operations, st.booleans())
def test_no_two_sizes_and_dtypes_are_taken_for_each_other(ranks, n, one, other, over_mpi):
    counts, dtypes = zip(one, other, strict=True)
    if one == other or counts == (0, 0):
        return
    check(ranks.run(n, of_sizes, counts, dtypes, world=OVER_MPI if over_mpi else None), [])
