"""The state of callbacks as plain data: JSON, and arrays beside it.

What cannot be told so (files, threads, other objects) is left out, and named. Functions and models
are no state: who builds the callback anew has them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
from keras.callbacks import Callback, History, ProgbarLogger

from tnt_notebook.keras.step_functions import GIVEN_TO_CALLBACKS, choose_monitor

#: A function that EarlyStopping and its like choose at the end of their first epoch.
_MONITOR = "monitor_op"


def encoded(callbacks: Sequence[Callback]) -> tuple[list[dict[str, Any]], list[np.ndarray]]:
    """Of each callback ``{"class", "monitors", "state", "left_out"}``, values for JSON; and the
    arrays that these refer to."""
    arrays: list[np.ndarray] = []
    return [_of_one(callback, arrays) for callback in _with_state(callbacks)], arrays


def decode(
    callbacks: Sequence[Callback], states: Sequence[dict[str, Any]], arrays: Sequence[np.ndarray]
) -> list[str]:
    """Gives callbacks the state that others had: the first of a class that of the first one. What
    could not be restored is returned, as ``Class.attribute``."""
    kept, left_out = list(states), []
    for callback in _with_state(callbacks):
        name = type(callback).__name__
        state = next((state for state in kept if state["class"] == name), None)
        if state is None:
            left_out.append(name)
            continue
        kept.remove(state)
        if state["monitors"] and getattr(callback, _MONITOR, None) is None:
            choose_monitor(callback)  # what it sets beside the function is a part of the state
        vars(callback).update({k: _decoded(v, arrays) for k, v in state["state"].items()})
        left_out += [f"{name}.{attribute}" for attribute in state["left_out"]]
    return left_out


def _with_state(callbacks: Sequence[Callback]) -> list[Callback]:
    return [c for c in callbacks if not isinstance(c, (History, ProgbarLogger))]


def _of_one(callback: Callback, arrays: list[np.ndarray]) -> dict[str, Any]:
    state, left_out = {}, []
    for name, value in vars(callback).items():
        if name in GIVEN_TO_CALLBACKS or callable(value) or isinstance(value, keras.Model):
            continue
        begun = len(arrays)
        try:
            state[name] = _encoded(value, arrays)
        except (TypeError, RecursionError):
            del arrays[begun:]
            left_out.append(name)
    return {
        "class": type(callback).__name__,
        "monitors": getattr(callback, _MONITOR, None) is not None,
        "state": state,
        "left_out": left_out,
    }


def _encoded(value: Any, arrays: list[np.ndarray]) -> Any:
    if value is None or type(value) in (bool, int, float, str):
        return value
    if isinstance(value, list):
        return [_encoded(item, arrays) for item in value]
    if isinstance(value, tuple):
        return {"tuple": [_encoded(item, arrays) for item in value]}
    if isinstance(value, dict):
        return {"dict": [[_encoded(k, arrays), _encoded(v, arrays)] for k, v in value.items()]}
    if isinstance(value, (np.ndarray, np.generic)) and value.dtype.kind in "biufcV":
        arrays.append(np.array(value))
        kind = "array" if isinstance(value, np.ndarray) else "scalar"
        return {kind: len(arrays) - 1}
    raise TypeError(type(value).__name__)


def _decoded(value: Any, arrays: Sequence[np.ndarray]) -> Any:
    if isinstance(value, list):
        return [_decoded(item, arrays) for item in value]
    if not isinstance(value, dict):
        return value
    ((kind, inner),) = value.items()
    if kind == "tuple":
        return tuple(_decoded(item, arrays) for item in inner)
    if kind == "dict":
        return {_decoded(k, arrays): _decoded(v, arrays) for k, v in inner}
    return np.array(arrays[inner]) if kind == "array" else arrays[inner][()]
