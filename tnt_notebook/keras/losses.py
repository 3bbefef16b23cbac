"""Losses: what layers add, what compile() was given, and how values become one number.

The same from Keras 3.10 to 3.15, where nothing else is said.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any

import keras
from keras.src.backend.tensorflow import nn
from keras.src.trainers import compile_utils

from tnt_notebook.keras.replaced import replaced
from tnt_notebook.keras.state import is_of_keras


def logits_of(output: Any) -> Any | None:
    """What a softmax was computed of, to which crossentropies go back; None: nobody knows."""
    return getattr(output, "_keras_logits", None)


def set_logits(output: Any, logits: Any) -> None:
    """Says of what a softmax was computed."""
    output._keras_logits = logits


def moments_replaced(moments: Callable[..., Any]) -> contextlib.AbstractContextManager[None]:
    """Inside, a synchronized BatchNormalization has its statistics from ``moments(x, axes,
    keepdims)``, which gives mean and variance."""
    return replaced(nn, "_compute_moments_sync", lambda _, *given: moments(*given))


def statistics_replaced(
    statistics: Callable[..., Any],
) -> contextlib.AbstractContextManager[None]:
    """Inside, batch normalization that is not synchronized has mean and variance of a batch from
    ``statistics(compute, inputs, mask)``, where ``compute`` is what the layer does."""

    def moments(own: Callable[..., Any], layer: Any, inputs: Any, mask: Any) -> Any:
        if layer.synchronized:
            return own(layer, inputs, mask)
        return statistics(lambda x, mask=None: own(layer, x, mask), inputs, mask)

    return replaced(keras.layers.BatchNormalization, "_moments", moments)


def own_losses(layer: keras.Layer) -> list[Any]:
    """What a layer's last call has added to the loss, its sublayers' included: activity
    regularization (in Keras 3.10 summed over the samples, in 3.15 their mean) and ``add_loss``. The
    next call of the same layer forgets them."""
    return [loss for inner in layer._flatten_layers() for loss in inner._get_own_losses()]


def weight_losses(layer: keras.Layer) -> list[Any]:
    """What regularizers of weights add to the loss."""
    return list(layer._get_regularization_losses())


def weight_losses_replaced(
    loss_of: Callable[[Callable[[Any], Any], keras.Variable], Any],
) -> contextlib.AbstractContextManager[None]:
    """Inside, regularizers of weights are called by ``loss_of``, which gets them and the weight."""

    def losses(_: Callable[..., Any], layer: keras.Layer) -> list[Any]:
        weights = (v for v in layer.trainable_weights if v.regularizer is not None)
        return [loss_of(weight.regularizer, weight) for weight in weights]

    return replaced(keras.Layer, "_get_regularization_losses", losses)


def forget_losses(layer: keras.Layer) -> None:
    """Drops what the last call has added: tensors of a graph that nobody runs, perhaps."""
    layer._clear_losses()


def compiled_loss(model: keras.Model) -> Callable[..., Any] | None:
    """``(y, outputs, sample_weight)`` -> loss, as compile() was told; None without one."""
    return model._compile_loss


def compiled_metrics(model: keras.Model) -> keras.Metric | None:
    """The metrics that compile() was given, as one; None without any."""
    return model._compile_metrics


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
        and (metrics is None or bool(metrics.built))
    )


@contextlib.contextmanager
def compiled_replaced(loss: Callable[..., Any], metrics: Callable[..., Any]) -> Iterator[None]:
    """Inside, the loss and the metrics that compile() was given are called by ``loss`` and
    ``metrics``, which get a function of labels, outputs and weights, and these."""

    def computed(own: Callable[..., Any], one: Any, *given: Any) -> Any:
        return loss(functools.partial(own, one), *given)

    def counted(own: Callable[..., Any], all_: Any, *given: Any, **named: Any) -> None:
        metrics(functools.partial(own, all_), *given, **named)

    with (
        replaced(compile_utils.CompileLoss, "__call__", computed),
        replaced(compile_utils.CompileMetrics, "update_state", counted),
    ):
        yield


def loss_tracker(model: keras.Model) -> keras.metrics.Mean:
    """The metric that ``logs["loss"]`` is taken from."""
    return model._loss_tracker


def as_summand(model: keras.Model, loss: Any) -> Any:
    """A loss as Keras adds it to the others: in floatx, and one number."""
    return model._aggregate_additional_loss(loss)
