"""Any sequence of collectives gives what NumPy gives, with the same bits on all ranks."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.comm import sweep
from tests.comm.reference import OPS, TYPES, assert_reduced, noise, ops_of, reduced
from tnt_notebook import comm

WORLDS = (
    {},
    {},
    {"transport": "mpi"},
    {"lanes": 2},
    {"nodes": (0, 0, 1, 1)},
    {"nodes": (0, 1, 1, 0)},
)
LAYOUTS = ("contiguous", "transposed", "strided", "backwards")


@dataclass(frozen=True)
class Call:
    collective: str
    dtype: str
    shape: tuple[int, ...]
    layout: str
    op: str
    algorithm: int  # its number among those that fit, cyclically
    root: int
    scales: tuple[float, ...]
    special: bool  # NaN, infinities and zeros among the numbers


calls = st.builds(
    Call,
    st.sampled_from(
        ["allreduce", "allreduce_into", "reduce", "reduce_scatter", "broadcast", "allgather",
         "alltoall", "barrier"]
    ),
    st.sampled_from(TYPES),
    st.lists(st.integers(0, 12), max_size=3).map(tuple)
    | st.integers(0, 70_000).map(lambda n: (n,)),
    st.sampled_from(LAYOUTS),
    st.sampled_from(OPS),
    st.integers(0, 6),
    st.integers(0, 3),
    st.just((1.0,) * 4) | st.tuples(*[st.sampled_from([0.0, 1.0, 0.5, -2.0])] * 4),
    st.booleans(),
)  # fmt: skip


def array_of(rank: int, call: Call) -> np.ndarray:
    array = noise(rank, call.shape, call.dtype)
    if call.special and not np.issubdtype(array.dtype, np.integer):
        values = np.array([np.nan, np.inf, -np.inf, -0.0, 0.0, 1.0, -1.0, 2.0], array.dtype)
        array = np.random.default_rng([rank, *call.shape]).choice(values, call.shape)
    if call.layout == "transposed":
        return np.asfortranarray(array)
    if call.layout == "strided" and array.ndim:
        return np.repeat(array, 3, axis=-1)[..., ::3]
    if call.layout == "backwards" and array.ndim:
        return array[::-1]
    return array


def carry_out(sequence: list[Call]) -> str:
    w = comm.world()
    digest = hashlib.sha256()
    for number, call in enumerate(sequence):
        for same_on_all in _results(w, call, f"call {number}"):
            digest.update(np.ascontiguousarray(same_on_all).tobytes())
    return digest.hexdigest()


def _results(w: comm.World, call: Call, what: str) -> list[Any]:
    """What is the same on all ranks; checks everything."""
    if call.collective == "barrier":
        w.barrier()
        return []
    shape = call.shape or ((1,) if call.collective in sweep.CUTTING else ())
    inputs = [array_of(rank, Call(**{**vars(call), "shape": shape})) for rank in range(w.size)]
    own, root = inputs[w.rank], call.root % w.size
    name = "allreduce" if call.collective == "allreduce_into" else call.collective
    fitting = sweep.algorithms(name, w)
    algorithm = fitting[call.algorithm % len(fitting)]
    what = f"{what} by {algorithm}: {call}"
    op = call.op if call.op in ops_of(call.dtype) else "sum"
    if call.collective == "broadcast":
        result = w.broadcast(own, root, algorithm)
        assert result.tobytes() == inputs[root].tobytes(), what
        return [result]
    if call.collective == "allgather":
        result = w.allgather(own, algorithm)
        assert result.tobytes() == np.concatenate(inputs).tobytes(), what
        return [result]
    if call.collective == "alltoall":
        wide = [np.concatenate([x] * w.size) for x in inputs]
        result = w.alltoall(wide[w.rank], algorithm)
        assert result.tobytes() == np.concatenate(inputs).tobytes(), what
        return [result]
    if call.collective == "reduce_scatter":
        parts = [np.array_split(x, w.size)[w.rank] for x in inputs]
        check(w.reduce_scatter(own, op, algorithm), parts, op, call, what)
        return []
    if call.collective == "reduce":
        result = w.reduce(own, op, root, algorithm)
        if w.rank == root:
            check(result, inputs, op, call, what)
        return []
    scales = call.scales[: w.size]
    if np.issubdtype(own.dtype, np.integer) or call.special:
        scales = tuple(float(s != 0) for s in scales)
    if call.collective == "allreduce":
        result = w.allreduce(own, op, scales[w.rank], algorithm)
    else:
        result = np.ascontiguousarray(own).copy().reshape(own.shape)
        w.allreduce_into(result, result, op, scales[w.rank], algorithm)
    check(result, inputs, op, call, what, scales)
    return [result]


def check(result, inputs, op, call, what, scales=()):
    if call.special and not np.issubdtype(result.dtype, np.integer) and op != "mean":
        expected = reduced(inputs, op, scales)
        np.testing.assert_array_equal(result.astype("float64"), expected, what)
    elif not call.special or np.issubdtype(result.dtype, np.integer):
        assert_reduced(result, inputs, op, what, scales)


@settings(max_examples=250, deadline=None, derandomize="CI" in os.environ)
@given(st.integers(1, 4), st.sampled_from(WORLDS), st.lists(calls, min_size=1, max_size=12))
def test_any_sequence_of_collectives(ranks, n, world, sequence):
    if "nodes" in world:
        n = 4
    digests = ranks.run(n, carry_out, sequence, world=world if n > 1 and world else None)
    assert len(set(digests)) == 1
