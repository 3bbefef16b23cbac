"""Runs collectives on this rank, by every algorithm, and compares with NumPy on all ranks' inputs.

What they return is a digest of the results that must have the same bits on all ranks.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence

import numpy as np

from tests.comm.reference import assert_reduced, noise, ops_of, small_integers
from tnt_notebook import comm
from tnt_notebook.comm import Communicator, schedules

SHAPES = ((), (0,), (1,), (3,), (2, 3, 5), (0, 4), (7, 1), (1000,), (20_011,))
#: These cut the first axis, so there has to be one.
CUTTING = ("reduce_scatter", "allgather", "alltoall")

Inputs = Callable[[int, Sequence[int], str], np.ndarray]


def algorithms(collective: str, over: Communicator) -> list[str | None]:
    """Those of the backend that fit these ranks, and the choice of the backend."""
    nodes = set(over.node)
    names = schedules.names(collective)
    if len(nodes) > 1:
        names = [name for name in names if name != "direct"]
    if not 1 < len(nodes) < over.size:
        names = [name for name in names if name != "hierarchical"]
    return [None, *names]


def reductions(
    dtype: str,
    shapes: Iterable[Sequence[int]] = SHAPES,
    inputs_of: Inputs = small_integers,
    over: Communicator | None = None,
) -> str:
    """Allreduce, also into an array and in place, reduce and reduce-scatter."""
    over = over or comm.world()
    digest = hashlib.sha256()
    for shape in shapes:
        inputs = [inputs_of(rank, shape, dtype) for rank in range(over.size)]
        own = inputs[over.rank]
        for op in ops_of(dtype):
            for algorithm in algorithms("allreduce", over):
                what = f"allreduce ({op}) of {dtype}{list(shape)} by {algorithm}"
                result = over.allreduce(own, op, algorithm=algorithm)
                assert_reduced(result, inputs, op, what)
                in_place = own.copy()
                assert over.allreduce_into(in_place, in_place, op, algorithm=algorithm) is in_place
                assert in_place.tobytes() == result.tobytes(), f"{what}, into its input"
                digest.update(result.tobytes())
            for algorithm in algorithms("reduce", over):
                root = len(shape) % over.size
                what = f"reduce ({op}) of {dtype}{list(shape)} to {root} by {algorithm}"
                result = over.reduce(own, op, root, algorithm)
                assert (result is None) == (over.rank != root), what
                if result is not None:
                    assert_reduced(result, inputs, op, what)
            for algorithm in algorithms("reduce_scatter", over) if shape else ():
                what = f"reduce_scatter ({op}) of {dtype}{list(shape)} by {algorithm}"
                parts = [np.array_split(x, over.size)[over.rank] for x in inputs]
                assert_reduced(over.reduce_scatter(own, op, algorithm), parts, op, what)
        np.testing.assert_array_equal(own, inputs_of(over.rank, shape, dtype))
    return digest.hexdigest()


def movements(
    dtype: str, shapes: Iterable[Sequence[int]] = SHAPES, over: Communicator | None = None
) -> str:
    """Broadcast, allgather and alltoall, which keep every bit."""
    over = over or comm.world()
    digest = hashlib.sha256()
    for shape in shapes:
        inputs = [noise(rank, shape, dtype) for rank in range(over.size)]
        own = inputs[over.rank]
        for algorithm in algorithms("broadcast", over):
            for root in range(over.size):
                result = over.broadcast(own, root, algorithm)
                _assert_same(result, inputs[root], f"broadcast from {root} by {algorithm}")
                digest.update(result.tobytes())
        if not shape:
            continue
        # Ranks give blocks of different lengths.
        blocks = [noise(rank, (rank * shape[0], *shape[1:]), dtype) for rank in range(over.size)]
        for algorithm in algorithms("allgather", over):
            for parts in (inputs, blocks):
                result = over.allgather(parts[over.rank], algorithm)
                _assert_same(result, np.concatenate(parts), f"allgather by {algorithm}")
                digest.update(result.tobytes())
        all_ = range(over.size)
        to = [[noise(source * over.size + q, shape, dtype) for q in all_] for source in all_]
        for algorithm in algorithms("alltoall", over):
            result = over.alltoall(np.concatenate(to[over.rank]), algorithm)
            expected = np.concatenate([to[source][over.rank] for source in all_])
            _assert_same(result, expected, f"alltoall by {algorithm}")
    return digest.hexdigest()


def small_calls(over: Communicator | None = None) -> None:
    """Barriers, numbers and bytes."""
    over = over or comm.world()
    over.barrier()
    numbers = [(-1) ** rank * 2**62 // (rank + 1) for rank in range(over.size)]
    assert over.gather_numbers(numbers[over.rank]) == numbers
    for unit in (0, 1, 1000, 100_000):
        blocks = [bytes([65 + rank]) * unit * rank for rank in range(over.size)]
        assert over.allgather_bytes(blocks[over.rank]) == blocks
        for root in range(over.size):
            assert over.broadcast_bytes(blocks[over.rank], root) == blocks[root]


def everything(over: Communicator | None = None) -> str:
    """Every collective by every algorithm, of a few shapes."""
    shapes = ((), (0,), (5,), (3, 1001), (70_001,))
    small_calls(over)
    return reductions("float32", shapes, over=over) + movements("float64", shapes, over)


def _assert_same(result: np.ndarray, expected: np.ndarray, what: str) -> None:
    assert result.dtype == expected.dtype and result.shape == expected.shape, (
        f"{what}: {result.dtype}{result.shape}, not {expected.dtype}{expected.shape}"
    )
    assert result.tobytes() == expected.tobytes(), f"{what} of {result.dtype}{result.shape}"
