"""Finds by which rule state combines that a layer of a stage changes: on one rank, by trying.

A layer is called on samples that are drawn by chance, and on two parts of them: which rule makes of
what the parts leave what the whole leaves? All ranks that have the layer draw the same. Data
parallel ranks try whole steps instead: :mod:`tnt_notebook.parallel.trial`.
"""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tnt_notebook.errors import ModelError, brief
from tnt_notebook.keras.losses import forget_losses
from tnt_notebook.keras.state import tensor_of
from tnt_notebook.parallel.combine import RULES, combine
from tnt_notebook.parallel.drawn import drawn
from tnt_notebook.parallel.pipeline.graph import Call, Graph
from tnt_notebook.parallel.trial import STARTS, chosen_of, fitting_rules

#: Samples of a trial, and of its first part.
_TRIED, _PART = 8, 3
_ROUNDING = 1e-4


def found_rule(graph: Graph, call: Call, variable: keras.Variable, training: bool) -> str:
    """The rule of a variable that a call assigns. Raises ModelError if none can be found."""
    advice = (
        f"Say before training how it combines: tnt.combine(variable, rule), with one of "
        f"{', '.join(map(repr, RULES))}."
    )
    held, chance = tensor_of(variable), np.random.default_rng(1)
    high = np.arange(_TRIED) >= _PART  # the two parts differ much
    fitting, changed = set(RULES), False
    saved = [(v, v.read_value()) for v in map(tensor_of, call.operation.variables)]

    def left_by(values: dict[int, Any], start: tf.Tensor) -> np.ndarray:
        held.assign(start)
        call.run(dict(values), training)
        return np.asarray(held, np.float64).ravel()

    try:
        for begin in STARTS:
            if begin is not None and not held.dtype.is_floating:
                continue
            if begin is not None and changed and begin != 0:
                continue
            own = held.read_value()
            start = own if begin is None else tf.fill(held.shape, tf.cast(begin, held.dtype))
            values = {n: drawn(chance, graph.spec(n), high) for n in call.takes}
            parts = [
                left_by({n: _rows(graph, n, v[rows]) for n, v in values.items()}, start)
                for rows in (slice(_PART), slice(_PART, None), slice(None))
            ]
            before, whole = np.asarray(start, np.float64).ravel(), parts.pop()
            if not all(np.isfinite(v).all() for v in (before, whole, *parts)):
                continue
            changed |= any((v != before).any() for v in (whole, *parts))
            counts = np.array([_PART, _TRIED - _PART], np.float64)
            rounding = _ROUNDING * max(np.abs(v).max(initial=0) for v in (whole, *parts))
            fitting &= fitting_rules(before, np.stack(parts), counts, whole, rounding)
    except Exception as error:  # it wants other values than these
        raise ModelError(
            f"The layer {call.name!r} assigns {variable.path}, and how micro-batches are to "
            f"combine what each makes of it could not be found out by trying: {brief(error)}. "
            f"{advice}"
        ) from error
    finally:
        for of_layer, value in saved:
            of_layer.assign(value)
        forget_losses(call.operation)
    if not changed or not fitting:
        raise ModelError(
            f"The layer {call.name!r} assigns {variable.path}, and of what each micro-batch makes "
            "of it neither the sum nor the mean, the largest nor the smallest is what the whole "
            f"batch makes of it. {advice}"
        )
    combine(variable, rule := chosen_of(fitting))
    return rule


def _rows(graph: Graph, value: int, rows: np.ndarray) -> Any:
    tensor = tf.constant(rows)
    return tf.sparse.from_dense(tensor) if value in graph.sparse else tensor
