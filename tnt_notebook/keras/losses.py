"""Losses: what layers add, what compile() was given, and how values become one number.

The same from Keras 3.10 to 3.15, where nothing else is said.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import keras
from keras.src.backend.tensorflow import nn
from keras.src.losses import loss as keras_loss

from tnt_notebook.keras.replaced import replaced


def reduction_replaced(reduce: Callable[..., Any]) -> contextlib.AbstractContextManager[None]:
    """Inside, losses reduce values by ``reduce``, which gets Keras's function, ``values``,
    ``sample_weight``, ``mask``, ``reduction`` and ``dtype``."""
    return replaced(keras_loss, "reduce_weighted_values", reduce)


def reduced(values: Any, sample_weight: Any, reduction: str, dtype: Any) -> Any:
    """The values of a loss as one number."""
    return keras_loss.reduce_weighted_values(
        values, sample_weight=sample_weight, mask=None, reduction=reduction, dtype=dtype
    )


def logits_of(output: Any) -> Any | None:
    """What a softmax was computed of, to which crossentropies go back; None: nobody knows."""
    return getattr(output, "_keras_logits", None)


def set_logits(output: Any, logits: Any) -> None:
    """Says of what a softmax was computed."""
    output._keras_logits = logits


def masked_weights(sample_weight: Any, mask: Any, dtype: Any, reduction: str) -> Any:
    """The weights by whose sum a masked or weighted loss is divided."""
    return keras_loss.apply_mask(sample_weight, mask, dtype, reduction)


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


def loss_tracker(model: keras.Model) -> keras.metrics.Mean:
    """The metric that ``logs["loss"]`` is taken from."""
    return model._loss_tracker


def as_summand(model: keras.Model, loss: Any) -> Any:
    """A loss as Keras adds it to the others: in floatx, and one number."""
    return model._aggregate_additional_loss(loss)
