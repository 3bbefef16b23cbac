"""Trains a model on this rank's world, or with Keras alone, and tells everything that came out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import keras
import numpy as np

import tnt_notebook as tnt


@dataclass
class Outcome:
    weights: list[np.ndarray]
    history: dict[str, list[float]]
    evaluation: dict[str, float]
    predictions: Any
    optimizer: list[np.ndarray]


def train(
    make: Callable[[], keras.Model],
    fit: dict[str, Any],
    distributed: bool,
    evaluate: dict[str, Any] | None = None,
    pipeline: Callable[[keras.Model], tnt.Pipeline] | None = None,
    more: dict[str, Any] | None = None,
) -> Outcome:
    """Builds a model from a fixed seed, fits it, evaluates and predicts.

    Args:
        more: options of ``tnt.Model``.
    """
    keras.utils.set_random_seed(7)
    model = make()
    keras.utils.set_random_seed(11)
    trained = model
    if distributed:
        trained = tnt.Model(model, pipeline=pipeline and pipeline(model), **more or {})
    history = trained.fit(**fit, verbose=0)
    evaluation = trained.evaluate(**evaluate, return_dict=True, verbose=0) if evaluate else {}
    predictions = None
    if evaluate and "x" in evaluate:
        predictions = trained.predict(evaluate["x"], batch_size=16, verbose=0)
    return Outcome(
        [np.asarray(w) for w in model.get_weights()],
        history.history,
        evaluation,
        predictions,
        [np.asarray(v.value) for v in (model.optimizer.variables if model.optimizer else [])],
    )


_alone: dict[str, Outcome] = {}


def compare(
    ranks: Any,
    n: int,
    function: Callable[..., Outcome],
    *args: Any,
    alone: tuple[Any, ...] | None = None,
    **tolerance: float,
) -> tuple[Outcome, Outcome]:
    """Runs ``function(*args, True)`` on n ranks, and ``function(*args, False)`` once on one.

    With ``alone``, these are the arguments on one rank, and ``args`` are all that n ranks have.
    Gives what came out on the n ranks, and on one.
    """
    if alone is None:
        args, alone = (*args, True), (*args, False)
    key = f"{function.__module__} {function.__qualname__} {alone}"
    if key not in _alone:
        (_alone[key],) = ranks.run(1, function, *alone)
    outcomes = ranks.run(n, function, *args)
    assert_same(outcomes[0], _alone[key], **tolerance)
    assert_identical(outcomes)
    return outcomes[0], _alone[key]


def close(ours: Any, theirs: Any, rtol: float = 2e-5, atol: float = 2e-6) -> None:
    """Arrays, in any structure, that are equal up to the order of floating-point sums."""
    keras.tree.map_structure(
        lambda a, b: np.testing.assert_allclose(a, b, rtol, atol), ours, theirs
    )


def same_bits(ours: Any, theirs: Any) -> None:
    """Arrays, in any structure."""
    keras.tree.map_structure(np.testing.assert_array_equal, ours, theirs)


def assert_same(ours: Outcome, theirs: Outcome, rtol: float = 2e-5, atol: float = 2e-6) -> None:
    """All that came out is equal up to the order of floating-point sums."""
    close(ours.weights, theirs.weights, rtol, atol)
    assert list(ours.history) == list(theirs.history)
    for name, values in theirs.history.items():
        np.testing.assert_allclose(ours.history[name], values, rtol, atol, err_msg=name)
    close(ours.evaluation, theirs.evaluation, rtol, atol)
    assert (ours.predictions is None) == (theirs.predictions is None)
    if theirs.predictions is not None:
        close(ours.predictions, theirs.predictions, 10 * rtol, 10 * atol)


def assert_identical(outcomes: list[Outcome]) -> None:
    """All ranks hold the same bits."""
    for outcome in outcomes[1:]:
        same_bits(outcome.weights, outcomes[0].weights)
        same_bits(outcome.optimizer, outcomes[0].optimizer)
        assert outcome.history.keys() == outcomes[0].history.keys()
        for name, values in outcome.history.items():
            np.testing.assert_array_equal(values, outcomes[0].history[name], err_msg=name)
