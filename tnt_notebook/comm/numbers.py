"""What can be exchanged, and how it is combined: names, and the backend's numbers of them."""

from __future__ import annotations

import functools

import numpy as np

from tnt_notebook.choices import DTYPES

#: In the order of the backend's numbers, as are its element types in choices.py.
REDUCTIONS = ("sum", "min", "max", "product")
COLLECTIVES = (
    "allreduce", "reduce_scatter", "allgather", "broadcast", "reduce", "alltoall", "barrier",
    "alltoallv",
)  # fmt: skip

_FLOATS = ("float32", "float64", "bfloat16", "float16")


@functools.cache
def type_number(dtype: np.dtype) -> int:
    """The backend's number of a dtype; raises TypeError if it cannot be exchanged."""
    if dtype.name not in DTYPES or not dtype.isnative:
        raise TypeError(f"{dtype} cannot be exchanged; it must be one of {', '.join(DTYPES)}")
    return DTYPES.index(dtype.name)


def reduction_number(op: str, dtype: np.dtype, scale: float, size: int) -> tuple[int, float]:
    """The backend's number of a reduction, and the scale that goes with it."""
    if op == "mean":
        if dtype.name not in _FLOATS:
            raise TypeError(f"the mean of {dtype} is not a {dtype}: use sum, or convert to floats")
        return REDUCTIONS.index("sum"), scale / size
    if op not in REDUCTIONS:
        raise ValueError(f"op {op!r} is not one of sum, mean, min, max, product")
    return REDUCTIONS.index(op), scale
