"""Inputs of ranks, and what collectives have to make of them, by NumPy."""

from collections.abc import Sequence

import ml_dtypes
import numpy as np

TYPES = ("float32", "float64", "bfloat16", "float16", "int32", "int64", "uint8")
FLOATS = TYPES[:4]
OPS = ("sum", "mean", "min", "max", "product")
RANKS = (1, 2, 3, 4)

_UFUNC = {
    "sum": np.add, "mean": np.add, "min": np.minimum, "max": np.maximum, "product": np.multiply,
}  # fmt: skip


def dtype_of(name: str) -> np.dtype:
    return np.dtype(ml_dtypes.bfloat16 if name == "bfloat16" else name)


def ops_of(dtype: str) -> tuple[str, ...]:
    return OPS if dtype in FLOATS else tuple(op for op in OPS if op != "mean")


def small_integers(rank: int, shape: Sequence[int], dtype: str) -> np.ndarray:
    """Numbers whose sums and products over four ranks are exact in every type."""
    low = 0 if dtype == "uint8" else -3
    numbers = np.random.default_rng([rank, *shape]).integers(low, 4, tuple(shape))
    return numbers.astype(dtype_of(dtype))


def noise(rank: int, shape: Sequence[int], dtype: str) -> np.ndarray:
    """Numbers whose sums have to be rounded, or, of integers, wrap."""
    random = np.random.default_rng([rank, 7, *shape])
    if dtype in FLOATS:
        return random.normal(size=tuple(shape)).astype(dtype_of(dtype))
    limits = np.iinfo(dtype)
    return random.integers(limits.min, limits.max, tuple(shape), dtype, endpoint=True)


def reduced(inputs: Sequence[np.ndarray], op: str, scales: Sequence[float] = ()) -> np.ndarray:
    """The reduction of all inputs, in float64 where they are floats."""
    stack = np.stack(inputs)
    if not np.issubdtype(stack.dtype, np.integer):
        stack = stack.astype(np.float64)
    for i, scale in enumerate(scales):
        stack[i, ...] = stack[i] * np.array(scale, stack.dtype) if scale else 0
    with np.errstate(all="ignore"):
        result = _UFUNC[op].reduce(stack, axis=0, dtype=stack.dtype)
        return result / len(inputs) if op == "mean" else result


def assert_reduced(
    result: np.ndarray,
    inputs: Sequence[np.ndarray],
    op: str,
    what: str = "",
    scales: Sequence[float] = (),
) -> None:
    """Integers, minima and maxima exactly; other floats up to the rounding of each operation."""
    expected = reduced(inputs, op, scales)
    assert result.dtype == inputs[0].dtype, what
    assert result.shape == expected.shape, f"{what}: {result.shape}, not {expected.shape}"
    if np.issubdtype(result.dtype, np.integer) or (op in ("min", "max") and not scales):
        return np.testing.assert_array_equal(
            result, expected.astype(result.dtype), f"{what}", strict=False
        )
    magnitudes = [np.abs(x.astype(np.float64)) for x in inputs]
    bound = reduced(magnitudes, op, [abs(s) for s in scales])
    finfo = ml_dtypes.finfo(result.dtype)
    roundings = 2 * len(inputs) + 1
    tolerance = roundings * (float(finfo.eps) * bound + float(finfo.smallest_subnormal))
    error = np.abs(result.astype(np.float64) - expected)
    assert np.all(error <= tolerance), (
        f"{what}: wrong by {np.max(error / tolerance):.3g} times what rounding allows"
    )
