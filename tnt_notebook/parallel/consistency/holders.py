"""Which ranks hold the value of a variable, and how it comes to others.

whole  --part()-->  apart: every rank has what it trains
  ^                   |  trains
  +----- gather() ----+
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence

import keras
import numpy as np
import tensorflow as tf

from tnt_notebook.comm import Communicator, World
from tnt_notebook.keras.lazy_variables import create, is_here, materialize, release


def broadcast_value(over: Communicator, variable: keras.Variable, root: int) -> np.ndarray:
    """The value on rank ``root``, on all ranks, whether they hold it or not. Collective."""
    shape, dtype = tuple(variable.shape), tf.as_dtype(variable.dtype).as_numpy_dtype
    own = np.asarray(variable.value) if over.rank == root else np.empty(shape, dtype)
    return broadcast_array(over, own, root)


def broadcast_array(over: Communicator, own: np.ndarray, root: int = 0) -> np.ndarray:
    """The array of rank ``root``, on all ranks, each of which has one of that shape and dtype.
    Collective."""
    # As bytes: the int8 of a quantized layer, and bool, travel too; nothing is added up here.
    moved = over.broadcast(np.ascontiguousarray(own).reshape(-1).view(np.uint8), root)
    return moved.view(own.dtype).reshape(own.shape)


def holders_of(over: Communicator, variables: Sequence[keras.Variable]) -> list[list[int]]:
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
                materialize(variable, value)


class Holding:
    """Of a model of which ranks have different parts while it trains. Made on all ranks at once.

    Args:
        holders: gives each variable of the model and its optimizers, with the ranks that work with
            it; in the same order on all ranks.
        stay_apart: whether the model is never gathered, unless that is asked for.
    """

    def __init__(
        self,
        over: World,
        holders: Callable[[], list[tuple[keras.Variable, list[int]]]],
        stay_apart: bool,
    ) -> None:
        self._over, self.holders, self.stay_apart = over, holders, stay_apart
        state = holders()
        distribute(over, [v for v, _ in state], [ranks for _, ranks in state])
        # The ranks that have the whole model; None: it is not known, as after a fit that failed.
        self._gathered: set[int] | None = None
        if stay_apart:
            self.part()

    def part(self) -> None:
        """Gives back the memory of what other ranks train. Local; cheap if it is so already."""
        if self._gathered != set():
            self._gathered = set()
            for variable, ranks in self.holders():
                if self._over.rank not in ranks:
                    release(variable, ranks[0])

    def gather(self, ranks: Iterable[int] | None = None) -> None:
        """Brings the whole model, as it has been trained, to some of the ranks; default: to all,
        unless it stays apart. Collective.
        """
        if ranks is None:
            ranks = [] if self.stay_apart else range(self._over.size)
        wanted = {*ranks}
        if self._gathered is None or not wanted <= self._gathered:
            before, self._gathered = self._gathered or set(), None
            state = self.holders()
            distribute(self._over, [v for v, _ in state], [{*have, *wanted} for _, have in state])
            self._gathered = before | wanted


def slot_of(variable: keras.Variable, trainable: Sequence[keras.Variable]) -> keras.Variable | None:
    """The weight that a variable of an optimizer belongs to, by its name; or None."""
    name = variable.path.split("/", 1)[-1]
    matching = [v for v in trainable if f"{v.path.replace('/', '_')}_" in name]
    return max(matching, key=lambda v: len(v.path), default=None)
