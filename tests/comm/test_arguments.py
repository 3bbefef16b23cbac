# ruff: noqa: E501  one case a line
"""What cannot be done is refused before anything starts: the other ranks need not take part."""

import re

import numpy as np
import pytest

from tnt_notebook import comm

ONES = np.ones(6, "float32")

REFUSED = {
    "bool": (TypeError, "bool cannot be exchanged", lambda w: w.allreduce(ONES > 0)),
    "complex": (TypeError, "complex64", lambda w: w.broadcast(ONES.astype("complex64"))),
    "objects": (TypeError, "object", lambda w: w.allgather(np.array(["a", None]))),
    "the other byte order": (TypeError, ">f4", lambda w: w.allreduce(ONES.astype(">f4"))),
    "a bucket of bool": (TypeError, "bool", lambda w: w.bucket(3, bool)),
    "an unknown op": (ValueError, "'avg' is not one of sum", lambda w: w.allreduce(ONES, "avg")),
    "the mean of integers": (TypeError, "mean of int32", lambda w: w.reduce(ONES.astype("i4"), "mean")),
    "a scaled integer": (ValueError, "scale of 0 or 1", lambda w: w.allreduce(ONES.astype("i4"), scale=0.5)),
    "a root beyond": (ValueError, "rank 9 is not one of 0 to", lambda w: w.broadcast(ONES, 9)),
    "a root below": (ValueError, "rank -1 is not one of 0 to", lambda w: w.reduce(ONES, root=-1)),
    "a scalar to scatter": (ValueError, "scalar", lambda w: w.reduce_scatter(np.float32(1))),
    "scalars to gather": (ValueError, "scalars", lambda w: w.allgather(np.float32(1))),
    "blocks that are not equal": (ValueError, "multiple of 3", lambda w: w.alltoall(ONES[:4])),
    "an output of another shape": (ValueError, r"float32\[5\]", lambda w: w.allreduce_into(ONES[:5], ONES)),
    "an output of another dtype": (ValueError, "float64", lambda w: w.allreduce_into(np.empty(6), ONES)),
    "an output with gaps": (ValueError, "contiguous", lambda w: w.allreduce_into(np.empty(12, "f4")[::2], ONES)),
    "an output to read only": (ValueError, "writeable", lambda w: w.allreduce_into(read_only(), ONES)),
    "an output beside the input": (ValueError, "overlaps", lambda w: beside(w, np.empty(7, "f4"))),
    "an unknown algorithm": (ValueError, '"rings" is not possible', lambda w: w.allreduce(ONES, algorithm="rings")),
    "one of another collective": (ValueError, '"bruck"', lambda w: w.broadcast(ONES, algorithm="bruck")),
    "one that does not fit": (ValueError, '"hierarchical"', lambda w: w.allreduce(ONES, algorithm="hierarchical")),
    "a notice for nobody": (ValueError, "rank 9 is not one of", lambda w: w.notify(9, 0, b"")),
    "a notice too long": (ValueError, "8192 bytes", lambda w: w.notify(0, 0, bytes(8193))),
    "no time to wait": (ValueError, "positive", lambda w: w.set_timeout(0)),
    "a number too large": (OverflowError, "", lambda w: w.gather_numbers(2**64)),
}  # fmt: skip


def read_only() -> np.ndarray:
    array = np.empty(6, "float32")
    array.flags.writeable = False
    return array


def beside(w: comm.World, memory: np.ndarray) -> np.ndarray:
    return w.allreduce_into(memory[1:], memory[:-1])


def refuse(case):
    """One rank alone makes the call; then all work together."""
    w = comm.world()
    caught = None
    if w.rank == 1:
        error, _, call = REFUSED[case]
        try:
            call(w)
        except error as raised:
            caught = str(raised)
    total = w.allreduce(ONES)
    return caught, total


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_done_is_refused_on_the_rank_and_disturbs_nobody(ranks, case):
    outcomes = ranks.run(3, refuse, case)
    text = outcomes[1][0]
    assert text is not None, "nothing was raised"
    assert re.search(REFUSED[case][1], text), text
    for _, total in outcomes:
        np.testing.assert_array_equal(total, 3 * ONES)


def refuse_in_a_bucket():
    w = comm.world()
    bucket = w.bucket(3)
    bucket.array[:] = 1
    if w.rank == 1:
        with pytest.raises(ValueError, match='"rings" is not possible'):
            bucket.allreduce(algorithm="rings")
    return bucket.allreduce().tolist()


def test_an_unknown_algorithm_for_a_bucket_disturbs_nobody(ranks):
    assert ranks.run(3, refuse_in_a_bucket) == [[3, 3, 3]] * 3
