"""Losses and metrics of outputs that stay in blocks.

    output in blocks ->  loss that is a mean of numbers     of this rank's block, its labels and
                                                            weights; then the sum over ranks
                         loss made of sums, as Dice         of sums over all blocks
                         metric that is a mean of samples   of each sample in the same way
                         metric that counts                 what it counts here; then the sum
                         crossentropy, accuracy             where the classes are in blocks: of all
                         any other                          the output, gathered

So a loss of each voxel needs no rank that has all voxels. After it all ranks go on with the same
loss, and the same states of metrics, as if they had seen the whole output.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any

import keras
import tensorflow as tf

from tnt_notebook.comm import ops
from tnt_notebook.keras.compiled import (
    accuracy_of,
    axes_of_sums,
    counts,
    crossentropy_of,
    is_sparse,
    loss_is_of,
    mean_is_of,
    metrics_of_outputs_replaced,
    sums_replaced,
    values_of_samples_replaced,
)
from tnt_notebook.keras.losses import (
    logits_of,
    masked_weights,
    reduced,
    reduction_replaced,
)
from tnt_notebook.keras.replaced import replaced
from tnt_notebook.keras.state import tensor_of
from tnt_notebook.parallel.layers.divided import Divided, Output, Weights
from tnt_notebook.parallel.layers.moves import total
from tnt_notebook.parallel.layers.ranks import MeshRanks
from tnt_notebook.parallel.layers.softmax import crossentropy, likeliest, of_block


class Outputs:
    """The outputs of a call of the model that are in blocks, by id of the block."""

    def __init__(self, ranks: MeshRanks) -> None:
        self.ranks = ranks
        self._known: dict[int, Output] = {}

    def add(self, output: Output) -> tf.Tensor:
        """Gives its block, by which it is found again."""
        self._known[id(output.block)] = output
        return output.block

    def of(self, y_pred: Any) -> Divided | None:
        """What is known of an output; None: it is whole, or several."""
        output = self._known.get(id(y_pred))
        return None if output is None else Divided(output, self.ranks)

    def whole(self, y_pred: Any) -> Any:
        """Outputs in any structure, gathered where they are in blocks."""

        def gathered(leaf: Any) -> Any:
            output = self._known.get(id(leaf))
            return leaf if output is None else output.whole()

        return keras.tree.map_structure(gathered, y_pred)


@contextlib.contextmanager
def taken_in_blocks(outputs: Outputs) -> Iterator[None]:
    """Inside, Keras's losses and the metrics of compile() take blocks where they can."""
    with (
        replaced(keras.losses.Loss, "__call__", functools.partial(_loss, outputs)),
        metrics_of_outputs_replaced(functools.partial(_update, outputs)),
    ):
        yield


def _loss(
    outputs: Outputs,
    call: Callable[..., Any],
    loss: keras.Loss,
    y_true: Any,
    y_pred: Any,
    sample_weight: Any = None,
) -> Any:
    """Keras's ``Loss.__call__``: the sum over ranks of its parts."""
    divided = outputs.of(y_pred)
    if divided is not None:
        for found in (_loss_of_numbers, _loss_of_sums, _loss_of_classes):
            value = found(call, loss, divided, y_true, sample_weight)
            if value is not None:
                return value
    return call(loss, y_true, outputs.whole(y_pred), sample_weight)


def _loss_of_numbers(
    call: Callable[..., Any],
    loss: keras.Loss,
    divided: Divided,
    y_true: Any,
    sample_weight: Any,
) -> tf.Tensor | None:
    """A mean or sum over numbers of which this rank has what each is made of; None if it is none
    that can be computed so."""
    of = loss_is_of(loss)
    if of is None or not divided.has_whole(of):
        return None
    labels = divided.labels(y_true, squeezed=of == "numbers", sparse=is_sparse(loss))
    weights = divided.weights(sample_weight, y_true)
    if labels is None or weights is None or _divides_otherwise(loss, divided, weights):
        return None
    with reduction_replaced(functools.partial(_reduced, divided, f"loss {loss.name}")):
        return call(loss, labels, divided.block, weights.tensor)


def _reduced(
    divided: Divided,
    label: str,
    reduce: Callable[..., Any],
    values: Any,
    sample_weight: Any = None,
    mask: Any = None,
    reduction: str = "sum",
    dtype: Any = None,
) -> tf.Tensor:
    """Keras's ``reduce_weighted_values``, over all blocks."""
    divisor = None
    if reduction == "mean_with_sample_weight" and not (sample_weight is None and mask is None):
        divisor = masked_weights(sample_weight, mask, values.dtype, reduction)
    elif reduction != "sum" and mask is not None:
        divisor = mask
    if divisor is None:
        part = reduce(values, sample_weight, mask, reduction, dtype)
        if reduction != "sum":
            # The mean of this block counts by how much of the whole it is.
            part *= tf.cast(divided.share, part.dtype)
        return total(part, divided.group, label)
    part = reduce(values, sample_weight, mask, "sum", dtype)
    here = tf.stop_gradient(tf.reduce_sum(tf.cast(divisor, part.dtype)))
    whole = total(here, divided.group, f"the divisor of {label}")
    return tf.math.divide_no_nan(total(part, divided.group, label), whole)


def _divides_otherwise(loss: keras.Loss, divided: Divided, weights: Weights) -> bool:
    """Whether a loss divides by the sum of weights of which blocks have the same ones."""
    by_weights = loss.reduction == "mean_with_sample_weight" and weights.tensor is not None
    return by_weights and weights.cut != frozenset(divided.rows)


def _loss_of_sums(
    call: Callable[..., Any],
    loss: keras.Loss,
    divided: Divided,
    y_true: Any,
    sample_weight: Any,
) -> tf.Tensor | None:
    """A loss made of sums over all of which there are blocks, as Dice; None if it is none."""
    labels = divided.labels(y_true, squeezed=True, sparse=False)
    axes = None if labels is None else axes_of_sums(loss, labels.shape.rank)
    if axes is None or not axes.issuperset(divided.rows) or sample_weight is not None:
        return None

    def summed(own: Callable[..., Any], *given: Any, **options: Any) -> tf.Tensor:
        return total(own(*given, **options), divided.group, f"sum in loss {loss.name}")

    with sums_replaced(summed):
        values = loss.call(*(tf.cast(x, loss.dtype) for x in (labels, divided.block)))
    return reduced(values, None, loss.reduction, loss.dtype)


def _loss_of_classes(
    call: Callable[..., Any],
    loss: keras.Loss,
    divided: Divided,
    y_true: Any,
    sample_weight: Any,
) -> tf.Tensor | None:
    """A crossentropy whose classes are divided; None if it is none that can be computed so."""
    if divided.has_whole("last axis"):
        return None
    kind, classes, rest = crossentropy_of(loss), divided.of_classes(), divided.of_others()
    weights = rest.weights(sample_weight, y_true)
    if kind is None or weights is None or _divides_otherwise(loss, divided, weights):
        return None
    logits = divided.block if kind.of_logits else logits_of(divided.block)
    labels = divided.labels_of_classes(y_true, kind.sparse)
    if labels is None or logits is None or logits.dtype != loss.dtype:
        return None
    (rows,) = classes.rows.values()
    if kind.sparse:
        labels = of_block(labels, rows, divided.classes, logits.dtype)
    else:
        even = kind.smoothing / divided.classes
        labels = tf.cast(labels, logits.dtype) * (1 - kind.smoothing) + even
    label = f"loss {loss.name}"
    values = crossentropy(labels, logits, classes.group, label)
    part = reduced(values, weights.tensor, loss.reduction, loss.dtype)
    if loss.reduction != "sum":
        part *= tf.cast(rest.share, part.dtype)
    return total(part, rest.group, label) if rest.rows else part


def _update(
    outputs: Outputs,
    update: Callable[..., Any],
    of_output: Any,
    y_true: Any,
    y_pred: Any,
    sample_weight: Any = None,
) -> None:
    """Updates the metrics of one output."""
    divided = outputs.of(y_pred)
    for metric in of_output.metrics:
        if divided is None or not (
            _update_accuracy(divided, metric, y_true, sample_weight)
            or _update_mean(divided, metric, y_true, sample_weight)
            or _update_counts(divided, metric, y_true, sample_weight)
        ):
            metric.update_state(y_true, outputs.whole(y_pred), sample_weight=sample_weight)


def _update_mean(divided: Divided, metric: Any, y_true: Any, sample_weight: Any) -> bool:
    """Updates a metric that is a mean over samples; False if it is none, or needs the whole."""
    of = mean_is_of(metric)
    if of is None or not divided.has_whole(of):
        return False
    labels = divided.labels(y_true, squeezed=of == "numbers", sparse=is_sparse(metric))
    weights = divided.weights(sample_weight, y_true, of_samples=True)
    if labels is None or weights is None:
        return False
    with _of_whole_samples(divided, metric, weights):
        metric.update_state(labels, divided.block, sample_weight=weights.tensor)
    return True


def _update_accuracy(divided: Divided, metric: Any, y_true: Any, sample_weight: Any) -> bool:
    """Updates a metric that asks for the likeliest class, where classes are divided; False if it is
    none, or needs the whole."""
    kind, rest = accuracy_of(metric), divided.of_others()
    if kind is None or divided.has_whole("last axis"):
        return False
    labels = rest.labels_of_classes(y_true, kind.sparse)
    weights = rest.weights(sample_weight, y_true, of_samples=True)
    if labels is None or weights is None:
        return False
    classes = divided.of_classes()
    ((first, _),) = classes.rows.values()
    found = likeliest(divided.block, first, classes.group, metric.name)
    labels = tf.cast(labels, tf.int64) if kind.sparse else tf.argmax(labels, axis=-1)
    right = tf.cast(tf.equal(labels, found), keras.config.floatx())
    with _of_whole_samples(rest, metric, weights):
        keras.metrics.Mean.update_state(metric, right, sample_weight=weights.tensor)
    return True


def _of_whole_samples(
    divided: Divided, metric: Any, weights: Weights
) -> contextlib.AbstractContextManager[None]:
    """Inside, a metric that is given the values of blocks gets those of whole samples."""

    def values(own: Callable[..., Any], *given: Any, **options: Any) -> tuple[Any, Any]:
        made, weight = own(*given, **options)
        parts = [made, weight] if weights.cut else [made]
        scaled = [part * tf.cast(divided.share, part.dtype) for part in parts]
        label = f"allreduce of {metric.name} of samples"
        made, *others = ops.allreduce(scaled, label=label, over=divided.group)
        return made, others[0] if others else weight

    return values_of_samples_replaced(values) if divided.rows else contextlib.nullcontext()


def _update_counts(divided: Divided, metric: Any, y_true: Any, sample_weight: Any) -> bool:
    """Updates a metric that counts; False if it is none, or needs the whole."""
    if not counts(metric) or not divided.has_whole("last axis"):
        return False
    labels = divided.labels(y_true, squeezed=True, sparse=True)
    weights = divided.weights_like_labels(sample_weight, y_true)
    if labels is None or weights is None:
        return False
    states = [tensor_of(variable) for variable in metric.variables]
    before = [tf.identity(state) for state in states]
    for variable in metric.variables:
        variable.assign(tf.zeros_like(variable.value))
    metric.update_state(labels, divided.block, sample_weight=weights.tensor)
    label = f"allreduce of what {metric.name} counts"
    counted = ops.allreduce([tf.identity(s) for s in states], label=label, over=divided.group)
    for variable, old, new in zip(metric.variables, before, counted, strict=True):
        variable.assign(old + new)
    return True
