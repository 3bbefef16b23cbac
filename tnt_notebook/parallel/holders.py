"""Which ranks hold the value of a variable, and how it comes to others."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import keras
import numpy as np
import tensorflow as tf

from tnt_notebook.comm import World
from tnt_notebook.keras.absent import bring, create, is_here


def broadcast_value(over: World, variable: keras.Variable, root: int) -> np.ndarray:
    """The value on rank ``root``, on all ranks, whether they hold it or not. Collective."""
    if over.rank == root:
        return over.broadcast(np.asarray(variable.value), root)
    dtype = tf.as_dtype(variable.dtype).as_numpy_dtype
    return over.broadcast(np.empty(tuple(variable.shape), dtype), root)


def holders_of(over: World, variables: Sequence[keras.Variable]) -> list[list[int]]:
    """The ranks that hold each variable. Collective."""
    own = bytes(is_here(v) for v in variables)
    everyone = over.allgather_bytes(own)
    return [
        [r for r, there in enumerate(column) if there] for column in zip(*everyone, strict=True)
    ]


def distribute(
    over: World, variables: Sequence[keras.Variable], wanted: Sequence[Collection[int]]
) -> None:
    """Brings variables to the ranks that want them, from one that holds them. What no rank holds
    gets its initial value there. Collective."""
    for variable, holding, wanting in zip(
        variables, holders_of(over, variables), wanted, strict=True
    ):
        wants = over.rank in wanting
        if not holding:
            if wants:
                create(variable)
        elif not set(wanting) <= set(holding):
            value = broadcast_value(over, variable, holding[0])
            if wants and over.rank not in holding:
                bring(variable, value)
