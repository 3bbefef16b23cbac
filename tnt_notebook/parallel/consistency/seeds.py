"""Random numbers: the same on all ranks wherever they decide on data, order or initial weights."""

from __future__ import annotations

import base64
import contextlib
import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from tnt_notebook.comm import World
from tnt_notebook.keras.tensorflow import random_seed, random_state, set_random_state
from tnt_notebook.parallel.consistency import agreement

State = dict[str, Any]


def synchronise(over: World) -> None:
    """Gives all ranks the random state of rank 0: Python's, NumPy's and TensorFlow's. A seed that
    was set is kept. Without one TensorFlow gets one: datasets would shuffle differently on each
    rank."""
    if over.size == 1:
        return
    seed_tensorflow()
    set_state(agreement.from_rank_0(over, state()))


def seed_tensorflow() -> None:
    """Gives TensorFlow a seed, unless it has one."""
    if random_seed() is None:
        tf.random.set_seed(random.getrandbits(31))


def state() -> State:
    """The random state of this process, values for JSON."""
    return {**state_of_input(), **state_of_operations()}


def state_of_operations() -> State:
    """The part of it that TensorFlow draws from."""
    return {"seed": random_seed(), "tensorflow": _encoded(random_state())}


def state_of_input() -> State:
    """The part of it that input in Python draws from: Python's, and that of ``numpy.random``."""
    name, keys, *rest = np.random.get_state()
    return {"python": _encoded(random.getstate()), "numpy": [name, _text(np.asarray(keys)), *rest]}


@contextlib.contextmanager
def untouched() -> Iterator[None]:
    """Inside, nothing is drawn that others would have drawn afterwards."""
    has_seed = random_seed() is not None
    before = state() if has_seed else state_of_input()
    try:
        yield
    finally:
        set_state(before)
        if not has_seed and random_seed() is not None:
            tf.random.set_seed(None)


def set_state(state: State, anew: bool = False) -> None:
    """Makes a random state, or a part of it, that of this process. ``anew``: also where the seed is
    the same TensorFlow forgets what was drawn with it."""
    if "python" in state:
        random.setstate(_decoded(state["python"]))
        name, keys, *rest = state["numpy"]
        np.random.set_state((name, _numbers(keys), *rest))
    if "tensorflow" in state:
        set_random_state(state["seed"], _decoded(state["tensorflow"]), anew)


def _encoded(of_python: tuple[Any, ...]) -> list[Any]:
    version, numbers, gauss = of_python
    return [version, _text(np.array(numbers, np.uint32)), gauss]


def _decoded(state: list[Any]) -> tuple[Any, ...]:
    version, numbers, gauss = state
    return version, tuple(_numbers(numbers).tolist()), gauss


def _text(numbers: np.ndarray) -> str:
    return base64.b64encode(numbers.astype("<u4").tobytes()).decode()


def _numbers(text: str) -> np.ndarray:
    return np.frombuffer(base64.b64decode(text), "<u4").astype(np.uint32)
