"""Single collectives as data: what is called, with which arrays, and whether NumPy agrees."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from tests.comm import sweep
from tests.comm.reference import assert_reduced, noise, ops_of, reduced
from tnt_notebook.comm import Communicator

COLLECTIVES = (
    "allreduce", "allreduce_into", "reduce", "reduce_scatter", "broadcast", "allgather", "alltoall",
    "barrier",
)  # fmt: skip
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


def _array_of(rank: int, call: Call) -> np.ndarray:
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


def results(over: Communicator, call: Call, what: str) -> list[Any]:
    """Carries out a call and checks it; gives what has the same bits on all ranks."""
    if call.collective == "barrier":
        over.barrier()
        return []
    shape = call.shape or ((1,) if call.collective in sweep.CUTTING else ())
    inputs = [_array_of(rank, Call(**{**vars(call), "shape": shape})) for rank in range(over.size)]
    own, root = inputs[over.rank], call.root % over.size
    name = "allreduce" if call.collective == "allreduce_into" else call.collective
    fitting = sweep.algorithms(name, over)
    algorithm = fitting[call.algorithm % len(fitting)]
    what = f"{what} by {algorithm}: {call}"
    op = call.op if call.op in ops_of(call.dtype) else "sum"
    if call.collective == "broadcast":
        result = over.broadcast(own, root, algorithm)
        assert result.tobytes() == inputs[root].tobytes(), what
        return [result]
    if call.collective == "allgather":
        result = over.allgather(own, algorithm)
        assert result.tobytes() == np.concatenate(inputs).tobytes(), what
        return [result]
    if call.collective == "alltoall":
        wide = [np.concatenate([x] * over.size) for x in inputs]
        result = over.alltoall(wide[over.rank], algorithm)
        assert result.tobytes() == np.concatenate(inputs).tobytes(), what
        return [result]
    if call.collective == "reduce_scatter":
        parts = [np.array_split(x, over.size)[over.rank] for x in inputs]
        _check(over.reduce_scatter(own, op, algorithm), parts, op, call, what)
        return []
    if call.collective == "reduce":
        result = over.reduce(own, op, root, algorithm)
        if over.rank == root:
            _check(result, inputs, op, call, what)
        return []
    scales = call.scales[: over.size]
    if np.issubdtype(own.dtype, np.integer) or call.special:
        scales = tuple(float(s != 0) for s in scales)
    if call.collective == "allreduce":
        result = over.allreduce(own, op, scales[over.rank], algorithm)
    else:
        result = np.ascontiguousarray(own).copy().reshape(own.shape)
        over.allreduce_into(result, result, op, scales[over.rank], algorithm)
    _check(result, inputs, op, call, what, scales)
    return [result]


def _check(result, inputs, op, call, what, scales=()):
    if call.special and not np.issubdtype(result.dtype, np.integer) and op != "mean":
        expected = reduced(inputs, op, scales)
        np.testing.assert_array_equal(result.astype("float64"), expected, what)
    elif not call.special or np.issubdtype(result.dtype, np.integer):
        assert_reduced(result, inputs, op, what, scales)
