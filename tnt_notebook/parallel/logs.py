"""Logs of the global batch: metrics and votes of all ranks, in one small exchange.

It starts when the forward pass is done, and is hidden behind backpropagation.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import keras
import tensorflow as tf

from tnt_notebook.comm import ops
from tnt_notebook.parallel.combine import Change, assign, summand
from tnt_notebook.parallel.step import NEWS, Step, Votes


def global_logs(
    step: Step,
    logs: dict[str, Any],
    changes: Sequence[Change],
    votes: Votes,
) -> dict[str, Any]:
    """The logs of the global batch: of metrics, whose states are those of one process afterwards,
    and other values averaged.

    Args:
        changes: of the states of metrics, in the same order on all ranks.
    """
    of_metrics = _results(step, logs)
    others = {k: v for k, v in logs.items() if k not in of_metrics}
    share = step.share
    head = [share.local, share.fingerprint, *votes]
    parts = [tf.stack([tf.cast(value, tf.float64) for value in head])]
    own = [tf.reshape(summand(step, change, tf.float64), [-1]) for change in changes]
    parts += own
    # A NaN of the borrowed sample times 0 would still be a NaN.
    parts += [
        tf.reshape(tf.where(step.has_data, tf.cast(value, tf.float64) * step.scale, 0.0), [-1])
        for value in others.values()
    ]
    counts = [len(head), *(part.shape[0] for part in own), *(1 for _ in others)]
    (summed,) = ops.allreduce(
        [tf.concat(parts, 0)], label="allreduce of metrics and votes", over=step.over
    )
    values = tf.split(summed, counts)
    samples = tf.cast(share.total, tf.float64)
    sums = tf.unstack(values[0])
    news = tf.stack([samples, *sums[-len(votes) :], _same_data(step, values[0])])
    states = zip(changes, values[1 : 1 + len(changes)], strict=True)
    assign(step, changes, {id(change.variable): value for change, value in states})
    result = _results(step, logs)
    for name, value in zip(others, values[1 + len(changes) :], strict=True):
        result[name] = tf.cast(value[0], tf.float32)
    return {**{name: result[name] for name in logs}, NEWS: news}


def _results(step: Step, logs: dict[str, Any]) -> dict[str, Any]:
    """Of the logs, those that are results of metrics: of metrics that the step has updated, by
    their names, or by those in their result. Keras's own steps return the results of all."""
    model, changed = step.model, {id(v) for v in step.assigned}
    of_all = logs.keys() == model.get_metrics_result().keys()
    results: dict[str, Any] = {}
    for metric in model.metrics:
        if of_all or any(id(v) in changed for v in metric.variables):
            result = metric.result()
            results |= {metric.name: result, **(result if isinstance(result, dict) else {})}
    named = {name: result for name, result in results.items() if name in logs}
    # A result may be a variable, whose value is that of the scope in which it is read.
    whole: dict[str, Any] = keras.tree.map_structure(tf.convert_to_tensor, named)
    return whole


def _same_data(step: Step, sums: tf.Tensor) -> tf.Tensor:
    """1 if all ranks have cut the same global batch. If not, it is 0 on one rank at least."""
    share, size = step.share, step.over.size
    complete = tf.equal(sums[0], tf.cast(share.total, tf.float64))
    same = tf.equal(sums[1], tf.cast(share.fingerprint * size, tf.float64))
    return tf.cast(tf.logical_and(complete, same), tf.float64)
