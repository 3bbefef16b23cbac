"""Tries a layer of a stage, on one rank: does it make of the samples of micro-batches what it makes
of a whole batch, and by which rule does the state combine that it changes?

A layer is called on samples that are drawn by chance, and on two parts of them. All ranks that have
the layer draw the same.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tnt_notebook.error_text import brief
from tnt_notebook.errors import ModelError
from tnt_notebook.keras.losses import as_summand, forget_losses, own_losses
from tnt_notebook.keras.state import tensor_of
from tnt_notebook.parallel.alone import each_sample_alone
from tnt_notebook.parallel.combine import RULES, combine
from tnt_notebook.parallel.drawn import (
    PART,
    ROUNDING,
    SECOND_IS_HIGH,
    TRIED,
    drawn,
    rounding,
)
from tnt_notebook.parallel.pipeline.graph import Call, Graph

#: From which values variables start: their own, and then where one process had left them, so that
#: what is done every other step is seen; at last, if they have not changed so far or a rule might
#: fit by rounding only, what is beyond the values that a batch could have.
STARTS = (None, None, None, 0.0, -1e3, 1e3)
_ORDER = ("same", "sum", "mean", "max", "min", "first")

#: Samples of the two parts.
_COUNTS = np.array([PART, TRIED - PART], np.float64)


def found_rule(graph: Graph, call: Call, variable: keras.Variable, training: bool) -> str:
    """The rule of a variable that a call assigns. Raises ModelError if none can be found."""
    advice = (
        f"Say before training how it combines: tnt.combine(variable, rule), with one of "
        f"{', '.join(map(repr, RULES))}."
    )
    held, chance = tensor_of(variable), np.random.default_rng(1)
    fitting, changed = set(RULES), False

    def left_by(values: dict[int, Any], start: tf.Tensor) -> np.ndarray:
        held.assign(start)
        call.run(dict(values), training)
        return np.asarray(held, np.float64).ravel()

    try:
        with _left_as_it_was(call):
            for begin in STARTS:
                if begin is not None and not held.dtype.is_floating:
                    continue
                if begin is not None and changed and begin != 0:
                    continue
                own = held.read_value()
                start = own if begin is None else tf.fill(held.shape, tf.cast(begin, held.dtype))
                given = _parts_and_whole(graph, call, chance, SECOND_IS_HIGH)
                *parts, whole = [left_by(values, start) for values in given]
                before = np.asarray(start, np.float64).ravel()
                if not all(np.isfinite(v).all() for v in (before, whole, *parts)):
                    continue
                changed |= any((v != before).any() for v in (whole, *parts))
                allowed = ROUNDING * max(np.abs(v).max(initial=0) for v in (whole, *parts))
                fitting &= fitting_rules(before, np.stack(parts), _COUNTS, whole, allowed)
    except Exception as error:  # it wants other values than these
        raise ModelError(
            f"The layer {call.name!r} assigns {variable.path}, and how micro-batches are to "
            f"combine what each makes of it could not be found out by trying: {brief(error)}. "
            f"{advice}"
        ) from error
    if not changed or not fitting:
        raise ModelError(
            f"The layer {call.name!r} assigns {variable.path}, and of what each micro-batch makes "
            "of it neither the sum nor the mean, the largest nor the smallest is what the whole "
            f"batch makes of it. {advice}"
        )
    combine(variable, rule := chosen_of(fitting))
    return rule


def refuse_mixed_samples(graph: Graph, call: Call, model: keras.Model, training: bool) -> None:
    """Raises ModelError if a call makes something else of a sample with others beside it, or adds
    to the loss what is no mean over samples. Code that cannot compute what was drawn is passed
    over."""
    chance = np.random.default_rng(1)
    high = chance.permutation(TRIED) >= PART  # in both parts: sorted parts are no sorted whole

    def made_of(values: dict[int, Any]) -> tuple[list[np.ndarray], np.ndarray]:
        with _left_as_it_was(call):
            call.run(values, training)
            losses = own_losses(call.operation) if isinstance(call.operation, keras.Layer) else []
            added = [np.asarray(as_summand(model, loss), np.float64) for loss in losses]
        tensors = [_dense(values[n]) for n in call.gives]
        return [np.asarray(t) for t in tensors if t is not None], np.array(added)

    try:
        with each_sample_alone():
            *parts, whole = map(made_of, _parts_and_whole(graph, call, chance, high))
    except Exception:  # with real values it may do
        return
    makes, adds = zip(*parts, strict=True)
    alike = all(map(_is_of_samples, *makes, whole[0]))
    if not alike or not _are_close(np.average(adds, axis=0, weights=_COUNTS), whole[1]):
        raise ModelError(
            f"The layer {call.name!r} looks at several samples of a batch at a time, or adds a sum "
            "over samples to the loss: in a pipeline it is called on micro-batches, and would not "
            "train as in one process. Write it for each sample alone, and a sum over samples as a "
            "mean; or train without a pipeline."
        )


def _is_of_samples(first: np.ndarray, second: np.ndarray, whole: np.ndarray) -> bool:
    """Whether the parts together are the whole; or all the same, which no sample has changed."""
    if whole.ndim and first.ndim == second.ndim and len(first) + len(second) == len(whole):
        return _are_close(np.concatenate([first, second]), whole)
    return _are_close(first, whole) and _are_close(second, whole)


def _are_close(values: np.ndarray, others: np.ndarray) -> bool:
    if values.shape != others.shape:
        return False
    if values.dtype.kind not in "fcV":  # V: bfloat16
        return bool((values == others).all())
    narrow = values.dtype.itemsize < 4
    values, others = (v.astype(np.complex128) for v in (values, others))
    finite = np.isfinite(values) & np.isfinite(others)
    scale = np.abs(others[finite]).max(initial=0)
    allowed = scale * rounding(narrow)
    return bool((np.abs(values - others)[finite] <= allowed).all())


def _parts_and_whole(
    graph: Graph, call: Call, chance: np.random.Generator, high: np.ndarray
) -> list[dict[int, Any]]:
    """What a call takes, by value of the graph: two parts of some samples, and all of them."""
    values = {n: drawn(chance, graph.spec(n), high) for n in call.takes}
    parts = (slice(PART), slice(PART, None), slice(None))
    return [{n: _rows(graph, n, v[rows]) for n, v in values.items()} for rows in parts]


@contextlib.contextmanager
def _left_as_it_was(call: Call) -> Iterator[None]:
    """Afterwards the call's layer has its state of before, and no losses."""
    variables = getattr(call.operation, "variables", [])
    saved = [(v, v.read_value()) for v in map(tensor_of, variables)]
    try:
        yield
    finally:
        for variable, value in saved:
            variable.assign(value)
        if isinstance(call.operation, keras.Layer):
            forget_losses(call.operation)


def _dense(value: Any) -> Any:
    return tf.sparse.to_dense(value) if isinstance(value, tf.SparseTensor) else value


def _rows(graph: Graph, value: int, rows: np.ndarray) -> Any:
    tensor = tf.constant(rows)
    return tf.sparse.from_dense(tensor) if value in graph.sparse else tensor


def fitting_rules(
    before: np.ndarray,
    of_parts: np.ndarray,
    samples: np.ndarray,
    whole: np.ndarray,
    rounding: float,
) -> set[str]:
    """The rules that make of what parts have left what the whole batch leaves.

    Args:
        before: the value before, float64 [elements].
        of_parts: float64 [parts, elements].
        samples: of each part, float64 [parts].
        whole: float64 [elements].
        rounding: how far values may be apart.
    """
    having = of_parts[samples > 0]
    made = {
        "sum": before + (having - before).sum(0),
        "mean": np.average(of_parts, axis=0, weights=samples),
        "max": having.max(0),
        "min": having.min(0),
        "first": of_parts[0],
        "same": of_parts,
    }
    return {rule for rule, value in made.items() if (np.abs(value - whole) <= rounding).all()}


def chosen_of(fitting: set[str]) -> str:
    """The rule that is taken where several fit."""
    return next(rule for rule in _ORDER if rule in fitting)
