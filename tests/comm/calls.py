"""Single collectives as data: what is called, with which arrays, and whether NumPy agrees."""

import hashlib
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tests.comm.reference import assert_reduced, noise, ops_of, reduced
from tnt_notebook import comm
from tnt_notebook.comm import Communicator, schedules

REDUCTIONS = ("allreduce", "reduce", "reduce_scatter")
MOVEMENTS = ("broadcast", "allgather", "alltoall")
COLLECTIVES = (*REDUCTIONS, *MOVEMENTS, "barrier")
LAYOUTS = ("contiguous", "transposed", "strided", "backwards", "repeated")
SHAPES = ((), (0,), (1,), (3,), (2, 3, 5), (0, 4), (7, 1), (1000,), (4097,), (20_011,))
#: These cut the first axis, so there has to be one.
CUTTING = ("reduce_scatter", "allgather", "alltoall")


@dataclass(frozen=True)
class Call:
    collective: str
    dtype: str
    shape: tuple[int, ...]
    op: str = "sum"
    algorithm: int | schedules.Maker = 0  # its number among those that fit, cyclically
    root: int = 0
    layout: str = "contiguous"
    scales: tuple[float, ...] = ()  # of an allreduce
    special: bool = False  # NaN, infinities and zeros among the numbers


def algorithms(collective: str, over: Communicator) -> list[str | None]:
    """Those of the backend that fit these ranks, and the choice of the backend."""
    nodes = set(over.node)
    names = schedules.names(collective)
    if len(nodes) > 1:
        names = [name for name in names if name != "direct"]
    if not 1 < len(nodes) < over.size:
        names = [name for name in names if name != "hierarchical"]
    return [None, *names]


def sweep(
    dtype: str,
    shapes: Iterable[tuple[int, ...]],
    over: Communicator,
    own: Mapping[str, Sequence[schedules.Maker]] | None = None,
) -> Iterator[Call]:
    """Every collective with every op and every root by every algorithm, or by one's own."""
    every = {name: range(len(algorithms(name, over))) for name in (*REDUCTIONS, *MOVEMENTS)}
    for shape, (collective, by) in itertools.product(shapes, (own or every).items()):
        if not shape and collective in CUTTING:
            continue
        ops = ops_of(dtype) if collective in REDUCTIONS else ("sum",)
        roots = range(over.size if collective == "broadcast" else 1)
        for op, root, algorithm in itertools.product(ops, roots, by):
            yield Call(collective, dtype, shape, op, algorithm, root + len(shape))


def digest_of(calls: Iterable[Call], over: Communicator | None = None) -> str:
    """Carries out calls and checks them; gives a digest of what has the same bits on all ranks."""
    over, digest = over or comm.world(), hashlib.sha256()
    for number, call in enumerate(calls):
        for same_on_all in results(over, call, f"call {number}"):
            digest.update(np.ascontiguousarray(same_on_all).tobytes())
    return digest.hexdigest()


def everything(over: Communicator | None = None) -> str:
    """Every collective by every algorithm, of a few shapes."""
    over = over or comm.world()
    shapes = ((), (0,), (5,), (3, 1001), (70_001,))
    small_calls(over)
    return digest_of(sweep("float32", shapes, over), over)


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


def results(over: Communicator, call: Call, what: str) -> list[Any]:
    """Carries out a call and checks it; gives what has the same bits on all ranks."""
    if call.collective == "barrier":
        over.barrier()
        return []
    if not call.shape and call.collective in CUTTING:
        call = replace(call, shape=(1,))
    inputs = [_array_of(rank, call) for rank in range(over.size)]
    own, before = inputs[over.rank], inputs[over.rank].tobytes()
    algorithm: Any = call.algorithm
    if not callable(algorithm):
        fitting = algorithms(call.collective, over)
        algorithm = fitting[algorithm % len(fitting)]
    what = f"{what} by {algorithm}: {call}"
    found = _RESULTS[call.collective](over, call, inputs, algorithm, what)
    assert own.tobytes() == before, f"{what} has changed its input"
    return found


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
    if call.layout == "repeated" and array.ndim:
        return np.broadcast_to(array[:1], array.shape) if array.size else array
    return array


def _broadcast(over, call, inputs, algorithm, what):
    root = call.root % over.size
    result = over.broadcast(inputs[over.rank], root, algorithm)
    _assert_same(result, inputs[root], what)
    return [result]


def _allgather(over, call, inputs, algorithm, what):
    # Ranks may give blocks of different lengths.
    blocks = [np.concatenate([x] * rank)[1:] for rank, x in enumerate(inputs, 1)]
    found = []
    for parts in (inputs, blocks):
        found.append(over.allgather(parts[over.rank], algorithm))
        _assert_same(found[-1], np.concatenate(parts), what)
    return found


def _alltoall(over, call, inputs, algorithm, what):
    # What goes from a rank to another is that rank's input, turned round as often as the sum says.
    to = [[np.roll(x, source + q) for q in range(over.size)] for source, x in enumerate(inputs)]
    result = over.alltoall(np.concatenate(to[over.rank]), algorithm)
    _assert_same(result, np.concatenate([blocks[over.rank] for blocks in to]), what)
    return []


def _allreduce(over, call, inputs, algorithm, what):
    own, scales = inputs[over.rank], call.scales[: over.size]
    if np.issubdtype(own.dtype, np.integer) or call.special:
        scales = tuple(float(scale != 0) for scale in scales)
    scale, op = scales[over.rank] if scales else 1.0, _op(call)
    result = over.allreduce(own, op, scale, algorithm)
    _assert_reduced(result, inputs, op, call, what, scales)
    in_place = np.array(own, order="C")
    assert over.allreduce_into(in_place, in_place, op, scale, algorithm) is in_place
    assert in_place.tobytes() == result.tobytes(), f"{what}, into its input"
    return [result]


def _reduce(over, call, inputs, algorithm, what):
    op, root = _op(call), call.root % over.size
    result = over.reduce(inputs[over.rank], op, root, algorithm)
    assert (result is None) == (over.rank != root), what
    if result is not None:
        _assert_reduced(result, inputs, op, call, what)
    return []


def _reduce_scatter(over, call, inputs, algorithm, what):
    op, parts = _op(call), [np.array_split(x, over.size)[over.rank] for x in inputs]
    result = over.reduce_scatter(inputs[over.rank], op, algorithm)
    _assert_reduced(result, parts, op, call, what)
    return []


_RESULTS = {
    "allreduce": _allreduce, "reduce": _reduce, "reduce_scatter": _reduce_scatter,
    "broadcast": _broadcast, "allgather": _allgather, "alltoall": _alltoall,
}  # fmt: skip


def _op(call: Call) -> str:
    return call.op if call.op in ops_of(call.dtype) else "sum"


def _assert_reduced(
    result: np.ndarray,
    inputs: Sequence[np.ndarray],
    op: str,
    call: Call,
    what: str,
    scales: Sequence[float] = (),
) -> None:
    if call.special and not np.issubdtype(result.dtype, np.integer):
        if op != "mean":
            expected = reduced(inputs, op, scales)
            np.testing.assert_array_equal(result.astype("float64"), expected, what)
    else:
        assert_reduced(result, inputs, op, what, scales)


def _assert_same(result: np.ndarray, expected: np.ndarray, what: str) -> None:
    assert result.dtype == expected.dtype and result.shape == expected.shape, (
        f"{what}: {result.dtype}{result.shape}, not {expected.dtype}{expected.shape}"
    )
    assert result.tobytes() == expected.tobytes(), what
