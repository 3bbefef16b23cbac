"""Losses and metrics that compile() was given: which of them are sums over numbers.

Such a one can be computed of blocks of an output, and added up. Taken are what Keras's classes keep
of their functions, and where metrics get their values; the same from Keras 3.10 to 3.15.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import keras
from keras.src import ops
from keras.src.metrics import reduction_metrics
from keras.src.trainers import compile_utils

from tnt_notebook.keras.replaced import replaced
from tnt_notebook.keras.state import is_of_keras

#: What a loss or metric looks at to make one number of its sum: one number of the output, or all
#: along its last axis, the classes.
Of = Literal["numbers", "last axis"]

_OF_NUMBERS = (
    "mean_squared_error", "mean_absolute_error", "mean_absolute_percentage_error",
    "mean_squared_logarithmic_error", "huber", "log_cosh", "poisson", "binary_crossentropy",
    "binary_focal_crossentropy", "binary_accuracy",
)  # fmt: skip
_OF_LAST_AXIS = (
    "categorical_crossentropy", "categorical_focal_crossentropy", "categorical_hinge",
    "categorical_generalized_cross_entropy", "sparse_categorical_crossentropy", "kl_divergence",
    "cosine_similarity", "categorical_accuracy", "sparse_categorical_accuracy",
    "top_k_categorical_accuracy", "sparse_top_k_categorical_accuracy",
)  # fmt: skip

#: Metrics whose state counts numbers of the output, each once.
_COUNTS = (
    "TruePositives", "TrueNegatives", "FalsePositives", "FalseNegatives", "Precision", "Recall",
    "AUC", "SensitivityAtSpecificity", "SpecificityAtSensitivity", "PrecisionAtRecall",
    "RecallAtPrecision", "BinaryIoU", "IoU", "MeanIoU", "OneHotIoU", "OneHotMeanIoU",
)  # fmt: skip


def outputs_go_to_compiled(model: keras.Model, own_step: Callable[[Any], Any]) -> bool:
    """Whether nothing but the losses and metrics of compile() sees what the model returns.

    Args:
        own_step: the model's ``train_step`` or ``test_step``.
    """
    names = ("__call__", "compute_loss", "_compute_loss", "compute_metrics")
    loss, metrics = model._compile_loss, model._compile_metrics
    return (
        is_of_keras(own_step)
        and all(is_of_keras(getattr(type(model), name)) for name in names)
        and not any(name in vars(model) for name in names)
        and model.activity_regularizer is None
        and loss is not None
        and bool(loss.built)
        and all(is_of_keras(type(one.loss).__call__) for one in loss._flat_losses)
        and (metrics is None or bool(metrics.built))
    )


def loss_is_of(loss: keras.Loss) -> Of | None:
    """What a loss looks at that is a mean or a sum over numbers; None where it is none."""
    wraps_function = type(loss).call is keras.losses.MeanSquaredError.call
    if not wraps_function or loss.reduction in (None, "none"):
        return None
    return _function_is_of(loss.fn, loss._fn_kwargs)


def axes_of_sums(loss: keras.Loss, rank: int) -> set[int] | None:
    """The axes of outputs over which a loss makes sums, and all else of these: as Dice does; None
    if it is no such loss.

    Args:
        rank: of outputs and labels.
    """
    wraps_function = type(loss).call is keras.losses.MeanSquaredError.call
    if not wraps_function or loss.fn not in (keras.losses.dice, keras.losses.tversky):
        return None
    axis = loss._fn_kwargs.get("axis")
    axes = range(rank) if axis is None else [axis] if isinstance(axis, int) else axis
    return {one % rank for one in axes}


def sums_replaced(summed: Callable[..., Any]) -> contextlib.AbstractContextManager[None]:
    """Inside, ``summed`` is called with Keras's function in place of ``keras.ops.sum``."""
    return replaced(ops, "sum", summed)


@dataclass(frozen=True)
class Crossentropy:
    """A crossentropy over the last axis, or an accuracy.

    Attributes:
        sparse: whether labels are numbers of classes.
        of_logits: whether outputs are logits, not probabilities.
        smoothing: what part of a label's likelihood all classes share.
    """

    sparse: bool
    of_logits: bool = False
    smoothing: float = 0.0


def crossentropy_of(loss: keras.Loss) -> Crossentropy | None:
    """What a loss is, if it is one of :class:`Crossentropy`, without a class to ignore."""
    functions = (
        keras.losses.categorical_crossentropy, keras.losses.sparse_categorical_crossentropy,
    )  # fmt: skip
    if loss_is_of(loss) is None or loss.fn not in functions:
        return None
    options = loss._fn_kwargs
    if options.get("ignore_class") is not None:
        return None
    return Crossentropy(
        loss.fn is functions[1], options.get("from_logits", False),
        options.get("label_smoothing", 0.0),
    )  # fmt: skip


def accuracy_of(metric: keras.Metric) -> Crossentropy | None:
    """The same of a metric that asks which class is the likeliest."""
    functions = (keras.metrics.categorical_accuracy, keras.metrics.sparse_categorical_accuracy)
    if mean_is_of(metric) is None or getattr(metric, "_fn", None) not in functions:
        return None
    return Crossentropy(metric._fn is functions[1])


def mean_is_of(metric: keras.Metric) -> Of | None:
    """The same of a metric that is a mean over samples of their values."""
    kind = type(metric)
    if kind in (keras.metrics.RootMeanSquaredError, keras.metrics.Accuracy):
        return "numbers"
    if kind.update_state is not keras.metrics.MeanMetricWrapper.update_state:
        return None
    return _function_is_of(metric._fn, metric._fn_kwargs)


def is_sparse(function_of: Any) -> bool:
    """Whether the labels of a loss or metric are numbers of classes, one for all along the last
    axis of the output."""
    function = getattr(function_of, "fn", None) or getattr(function_of, "_fn", None)
    return getattr(function, "__name__", "").startswith("sparse_")


def counts(metric: keras.Metric) -> bool:
    """Whether the state of a metric is sums over the numbers, or rows of classes, of an output."""
    of_last = getattr(metric, "axis", -1) == -1
    return of_last and any(getattr(keras.metrics, n, None) is type(metric) for n in _COUNTS)


def metrics_of_outputs_replaced(
    update: Callable[..., Any],
) -> contextlib.AbstractContextManager[None]:
    """Inside, ``update`` is called with Keras's function, a list whose ``metrics`` are those of one
    output, ``y_true``, ``y_pred`` and ``sample_weight``."""
    return replaced(compile_utils.MetricsList, "update_state", update)


def values_of_samples_replaced(
    values: Callable[..., Any],
) -> contextlib.AbstractContextManager[None]:
    """Inside, means take the values of samples, and their weights or None, from ``values``. It gets
    Keras's function, which makes them of those of a metric's function, and what this gets."""
    return replaced(reduction_metrics, "reduce_to_samplewise_values", values)


def _function_is_of(function: Any, options: dict[str, Any]) -> Of | None:
    if options.get("axis", -1) != -1:
        return None

    def among(names: tuple[str, ...]) -> bool:
        rooms = (keras.losses, keras.metrics)
        return any(function is getattr(room, name, None) for room in rooms for name in names)

    return "numbers" if among(_OF_NUMBERS) else "last axis" if among(_OF_LAST_AXIS) else None
