"""How state combines over ranks: what a step changes on its own, and not an optimizer.

Each rank changes it by its part of the batch. What one process would have is, by rule:

=========  ========================================================================================
``sum``    what it was before the step, plus what each rank has added
``mean``   the mean of what ranks have, weighted by their samples
``max``    element by element the largest that a rank has; ``min`` the smallest
``first``  what rank 0 has
``same``   what every rank has: a count of steps, say. Nothing is exchanged
=========  ========================================================================================

So it is where ranks do not run a step together: there nothing has to be combined.

Ranks that have no samples of a batch add nothing, and are not asked for their largest or smallest.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

import keras
import tensorflow as tf

from tnt_notebook.comm import Communicator, ops
from tnt_notebook.keras.state import state_of_own_layers, state_of_own_metrics, tensor_of
from tnt_notebook.keras.tensorflow import wide

RULES = ("sum", "mean", "max", "min", "first", "same")

#: Of these, those of which one sum over ranks tells the value.
OF_SUMS = ("sum", "mean", "first")

#: Keras's own word for them, where it has one that is no default.
_OF_KERAS = {"sum": "sum", "mean": "mean", "only_first_replica": "first"}

_ATTRIBUTE = "_tnt_combines_by"


class Change(NamedTuple):
    """What a step has done to a variable on this rank.

    Attributes:
        before: its value when the step began.
        rule: one of :data:`RULES`.
        always_adds: whether a rank without samples adds to a sum as well.
    """

    variable: keras.Variable
    before: tf.Tensor
    rule: str
    always_adds: bool = False


class Part(NamedTuple):
    """What a rank has of the samples of a step, or of several.

    Attributes:
        scale: those of all ranks add up to 1; float64.
        has_data: whether it has any.
    """

    over: Communicator
    scale: tf.Tensor
    has_data: tf.Tensor


def combine(variable: keras.Variable, rule: str) -> keras.Variable:
    """Says how a variable combines over ranks that each change it by a part of the batch.

    For state that the code of a layer, metric or ``train_step`` assigns, counters, running sums,
    extremes, statistics, where ranks do not run a step together: with exchanges in which they train
    apart, and in pipelines. Without it the ``aggregation`` that the variable was made with counts,
    if it was given one; otherwise training is refused, but for metrics that only add up, and in a
    pipeline for what its graph tells. On one process it changes nothing::

        self.seen = self.add_weight(shape=(), initializer="zeros", trainable=False)
        tnt.combine(self.seen, "sum")

    Args:
        variable: of any shape and a dtype of numbers or bool; it is neither trained by an
            optimizer nor of one.
        rule: ``"sum"`` (what ranks have added is added up), ``"mean"`` (weighted by samples),
            ``"max"``, ``"min"``, ``"first"`` (rank 0's value) or ``"same"`` (all ranks compute the
            same, nothing is exchanged).

    Returns:
        The variable.

    Raises:
        TypeError: it is not a keras.Variable.
        ValueError: the rule is none of these, or the variable holds text.
    """
    if not isinstance(variable, keras.Variable):
        raise TypeError(
            f"tnt.combine takes a keras.Variable, not a {type(variable).__name__}. Make one by "
            "add_weight(..., trainable=False) or keras.Variable(..., trainable=False)."
        )
    if rule not in RULES:
        raise ValueError(f"tnt.combine knows no rule {rule!r}: it is one of {', '.join(RULES)}.")
    if variable.dtype == "string":
        raise ValueError(f"tnt.combine: {variable.path} holds text, which does not combine.")
    setattr(variable, _ATTRIBUTE, rule)
    return variable


def known_rules(model: keras.Model) -> dict[int, str]:
    """The rules of variables, by id, that are known: told, or of Keras's own layers and metrics."""
    metrics = {id(v): v for v in model.metrics_variables}
    rules = {id(v): "sum" for v in state_of_own_metrics(model)}
    for variable in state_of_own_layers(model):
        floats = keras.backend.is_float_dtype(variable.dtype)
        rules[id(variable)] = "mean" if floats else "same"
    for variable in [*model.non_trainable_variables, *metrics.values()]:
        rule = told_rule(variable, of_metric=id(variable) in metrics)
        if rule is not None:
            rules[id(variable)] = rule
    return rules


def told_rule(variable: keras.Variable, of_metric: bool = False) -> str | None:
    """What :func:`combine` or a variable's ``aggregation`` says. That of a metric's is "sum" also
    where nobody has said so."""
    rule: str | None = getattr(variable, _ATTRIBUTE, None)
    if rule is None:
        rule = _OF_KERAS.get(variable.aggregation)
        rule = None if of_metric and rule == "sum" else rule
    return rule


def summand(part: Part, change: Change, dtype: tf.DType) -> tf.Tensor:
    """What a rank adds to the sum over ranks from which the value follows. Empty where it follows
    from none."""
    now = tf.cast(tensor_of(change.variable), dtype)
    if change.rule == "sum":
        added = now - tf.cast(change.before, dtype)
        return added if change.always_adds else tf.where(part.has_data, added, 0)
    if change.rule == "mean":
        return tf.where(part.has_data, now * tf.cast(part.scale, dtype), 0)
    if change.rule == "first":
        return now if part.over.rank == 0 else tf.zeros_like(now)
    return tf.zeros([0], dtype)


def combine_changes(part: Part, changes: Sequence[Change]) -> None:
    """Gives variables the values that one process would have. Collective."""
    sums: dict[int, tf.Tensor] = {}
    for dtype, group in _by_dtype(changes, OF_SUMS):
        own = [summand(part, change, dtype) for change in group]
        label = f"allreduce of {_paths(group)}"
        summed = ops.allreduce(own, label=label, over=part.over)
        sums |= {id(c.variable): value for c, value in zip(group, summed, strict=True)}
    assign(part, changes, sums)


def assign(part: Part, changes: Sequence[Change], sums: Mapping[int, tf.Tensor]) -> None:
    """Assigns what follows from the sums over ranks of each :func:`summand`, by id of the variable;
    exchanges what follows from none. Collective."""
    of_sums = (change for change in changes if change.rule in OF_SUMS)
    values = {id(change.variable): _of_sum(change, sums) for change in of_sums}
    for rule in ("max", "min"):
        for dtype, group in _by_dtype(changes, (rule,)):
            infinite = float("inf") if dtype.is_floating else dtype.max
            neutral = infinite if rule == "min" else -infinite  # for a rank without data
            now = [tf.cast(tensor_of(change.variable), dtype) for change in group]
            own = [tf.where(part.has_data, value, neutral) for value in now]
            label = f"{rule} of {_paths(group)}"
            found = ops.allreduce(own, reduction=rule, label=label, over=part.over)
            values |= {id(c.variable): value for c, value in zip(group, found, strict=True)}
    for variable in (change.variable for change in changes if change.rule != "same"):
        value = tf.reshape(values[id(variable)], variable.shape)
        tensor_of(variable).assign(tf.cast(value, tensor_of(variable).dtype))


def _of_sum(change: Change, sums: Mapping[int, tf.Tensor]) -> tf.Tensor:
    summed = sums[id(change.variable)]
    if change.rule == "sum":
        before = tf.cast(change.before, summed.dtype)
        return tf.reshape(summed, before.shape) + before
    is_whole = not tensor_of(change.variable).dtype.is_floating
    return tf.round(summed) if is_whole and summed.dtype.is_floating else summed


def _paths(changes: Sequence[Change]) -> str:
    return ", ".join(change.variable.path for change in changes)


def _by_dtype(
    changes: Sequence[Change], rules: Collection[str]
) -> list[tuple[tf.DType, list[Change]]]:
    """Changes that can be exchanged together, and in what dtype."""
    groups: dict[str, list[Change]] = {}
    for change in changes:
        if change.rule in rules:
            dtype = tensor_of(change.variable).dtype
            if not dtype.is_floating:
                dtype = tf.float64 if change.rule == "mean" else tf.int64
            groups.setdefault(wide(dtype).name, []).append(change)
    return [(tf.as_dtype(name), groups[name]) for name in sorted(groups)]
