"""The training step of one rank, made of the model's own step.

    slice of the batch -> the model's train_step ............................ -> logs
                             optimizer.apply: exchange, then the real apply
                          -> exchange of what the step did to other variables
                          -> exchange of metric states, votes and fingerprints

While the model's step runs (is traced), a few functions of Keras are interposed on: see
:mod:`tnt_notebook.parallel.interpose`. Metrics and votes travel in one small exchange, which
starts when the forward pass is done and is hidden behind backpropagation.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import keras
import tensorflow as tf

from tnt_notebook.comm import World, channels, ops
from tnt_notebook.errors import ModelError
from tnt_notebook.parallel.data import Share, samples_of
from tnt_notebook.parallel.exchange import Exchange

#: The key under which a step returns, beside its logs, [samples of the global batch, the votes,
#: whether all ranks read the same batch], float64; on one rank the samples alone.
NEWS = "__tnt_news__"


@dataclass
class Step:
    """What is known while one step is traced."""

    over: World
    exchange: Exchange
    model: keras.Model
    share: Share
    assigned: list[keras.Variable] = field(default_factory=list)  # outside of optimizers
    exchanged: list[keras.Variable] = field(default_factory=list)
    applying: bool = False

    @property
    def scale(self) -> tf.Tensor:
        """This rank's part of the global batch, float64; 0 without data."""
        return tf.cast(self.share.local, tf.float64) / tf.cast(self.share.total, tf.float64)

    @property
    def has_data(self) -> tf.Tensor:
        return self.share.local > 0


class Votes(NamedTuple):
    """What ranks vote for, each with 0 or 1: variables of a rank, or the sums over all.

    Attributes:
        stop: to end the run after this step.
        look: to look at where time goes.
        keep: to make a checkpoint.
        leave: to leave the run with that, for another process to go on.
    """

    stop: Any
    look: Any
    keep: Any
    leave: Any


@dataclass(frozen=True)
class Setting:
    """What all steps of a model have in common.

    Attributes:
        votes: of this rank.
        interpose: the context in which a step is traced; on one rank it is ``interpose_alone``.
    """

    over: World
    exchange: Exchange
    votes: Votes
    interpose: Callable[[Step], AbstractContextManager[None]]
    interpose_alone: Callable[[World], AbstractContextManager[None]]


def train_step(
    setting: Setting, model: keras.Model, own_step: Callable[[Any], Any]
) -> Callable[[Any], dict[str, Any]]:
    """A ``train_step`` for batches of ``(slice, Share)``; ``own_step`` is the model's."""

    def finish(step: Step) -> None:
        _check_exchanged(step)
        _average_other_variables(step)

    return _whole_batch_step(setting, model, own_step, channels.TRAINING, finish)


def test_step(
    setting: Setting, model: keras.Model, own_step: Callable[[Any], Any]
) -> Callable[[Any], dict[str, Any]]:
    """A ``test_step`` for batches of ``(slice, Share)``."""
    return _whole_batch_step(setting, model, own_step, channels.EVALUATION, lambda step: None)


def predict_step(own_step: Callable[[Any], Any], over: World) -> Callable[[Any], Any]:
    """A ``predict_step`` for batches of ``(slice, Share)`` that gives all ranks all outputs."""

    def run(batch: Any) -> Any:
        data, share = batch
        local = tf.cast(Share(*share).local, tf.int32)
        outputs = own_step(data)
        with ops.channels(channels.PREDICTION):
            return keras.tree.map_structure(
                lambda output: gather_rows(output[:local], over), outputs
            )

    return run if over.size > 1 else own_step


def _whole_batch_step(
    setting: Setting,
    model: keras.Model,
    own_step: Callable[[Any], Any],
    over_channels: channels.Range,
    finish: Callable[[Step], None],
) -> Callable[[Any], dict[str, Any]]:
    def run_alone(batch: Any) -> dict[str, Any]:
        with setting.interpose_alone(setting.over):
            return {**_checked_logs(own_step(batch)), NEWS: samples_of(batch)}

    def run(batch: Any) -> dict[str, Any]:
        data, share = batch
        step = Step(setting.over, setting.exchange, model, Share(*share))
        before = _metric_states(model)
        with ops.channels(over_channels), setting.interpose(step):
            logs = _checked_logs(own_step(data))
            finish(step)
            return global_logs(step, logs, before, setting.votes)

    return run if setting.over.size > 1 else run_alone


def gather_rows(output: tf.Tensor, over: World) -> tf.Tensor:
    if isinstance(output, (tf.RaggedTensor, tf.SparseTensor)):
        raise ModelError(
            "Predictions that are ragged or sparse cannot be gathered from the ranks: let the "
            "model end in a dense tensor, or call predict without tnt_notebook."
        )
    if output.dtype not in ops.MOVED_DTYPES:
        raise ModelError(
            f"Predictions of dtype {output.dtype.name} cannot be gathered from the ranks."
        )
    return ops.allgather(output, label="allgather of predictions", over=over)


def _metric_states(model: keras.Model) -> list[tuple[keras.Variable, tf.Tensor]]:
    return [(v, tf.identity(v.value)) for v in model.metrics_variables]


def _check_exchanged(step: Step) -> None:
    """Refuses a step that would train a separate model on each rank."""
    exchanged = {id(v) for v in step.exchanged}
    trainable = step.model.trainable_variables
    strays = [
        v.path for v in step.assigned if id(v) not in exchanged and any(v is t for t in trainable)
    ]
    if strays:
        raise ModelError(
            f"train_step changes {', '.join(strays)} without an optimizer, so each rank would "
            "train its own model. Let a keras optimizer's apply() or apply_gradients() change "
            "trainable variables."
        )
    if trainable and not step.exchanged:
        raise ModelError(
            "train_step passes no gradient to a keras optimizer, so there is nothing that the "
            "ranks could exchange, and each would train its own model. Use the apply() or "
            "apply_gradients() of a keras.optimizers.Optimizer."
        )


def _average_other_variables(step: Step) -> None:
    """Makes variables that the step itself assigns, as batch norm does, the same on all ranks."""
    metrics = {id(v) for v in step.model.metrics_variables}
    unique = {id(v): v for v in step.assigned if id(v) not in metrics}
    own = [v for v in unique.values() if keras.backend.is_float_dtype(v.dtype)]
    for dtype in sorted({v.dtype for v in own}):
        group = [v for v in own if v.dtype == dtype]
        label = f"allreduce of {', '.join(v.path for v in group)}"
        means = ops.allreduce(
            [tf.convert_to_tensor(v.value) for v in group], step.scale, label=label, over=step.over
        )
        for variable, mean in zip(group, means, strict=True):
            variable.value.assign(mean)


def _checked_logs(logs: Any) -> dict[str, Any]:
    if not isinstance(logs, dict):
        raise ModelError(
            f"train_step and test_step must return a dict of logs, not a {type(logs).__name__}."
        )
    return logs


def global_logs(
    step: Step,
    logs: dict[str, Any],
    before: Sequence[tuple[keras.Variable, tf.Tensor]],
    votes: Votes,
) -> dict[str, Any]:
    """The logs of the global batch: metrics from their summed states, other values averaged."""
    _forget_borrowed_sample(step, before)
    metrics = step.model.metrics_variables
    others = {k: v for k, v in logs.items() if k not in _metric_names(step.model)}
    share = step.share
    head = [share.local, share.fingerprint, *votes]
    parts = [tf.stack([tf.cast(value, tf.float64) for value in head])]
    parts += [tf.reshape(tf.cast(v.value, tf.float64), [-1]) for v in metrics]
    # A NaN of the borrowed sample times 0 would still be a NaN.
    parts += [
        tf.reshape(tf.where(step.has_data, tf.cast(value, tf.float64) * step.scale, 0.0), [-1])
        for value in others.values()
    ]
    counts = [len(head), *(math.prod(v.shape) for v in metrics), *(1 for _ in others)]
    (summed,) = ops.allreduce(
        [tf.concat(parts, 0)], label="allreduce of metrics and votes", over=step.over
    )
    values = tf.split(summed, counts)
    samples = tf.cast(share.total, tf.float64)
    sums = tf.unstack(values[0])
    news = tf.stack([samples, *sums[-len(votes) :], _same_data(step, values[0])])
    states = [
        (v, _as_state(v, value, step.over.size))
        for v, value in zip(metrics, values[1 : 1 + len(metrics)], strict=True)
    ]
    with keras.StatelessScope(state_mapping=states):
        result: dict[str, Any] = {
            k: v for k, v in step.model.get_metrics_result().items() if k in logs
        }
    for name, value in zip(others, values[1 + len(metrics) :], strict=True):
        result[name] = tf.cast(value[0], tf.float32)
    return {**{name: result[name] for name in logs}, NEWS: news}


def _metric_names(model: keras.Model) -> set[str]:
    return set(model.get_metrics_result())


def _as_state(variable: keras.Variable, summed: tf.Tensor, size: int) -> tf.Tensor:
    """The state of a metric over all ranks. Keras says of each variable how replicas combine."""
    aggregation = getattr(variable, "aggregation", "sum")
    if aggregation in ("mean", "only_first_replica", "none"):
        summed = summed / size
    return tf.cast(tf.reshape(summed, variable.shape), variable.value.dtype)


def _forget_borrowed_sample(step: Step, before: Sequence[tuple[keras.Variable, tf.Tensor]]) -> None:
    def restore() -> tf.Tensor:
        for variable, state in before:
            variable.value.assign(state)
        return tf.constant(False)

    tf.cond(step.has_data, lambda: tf.constant(True), restore)


def _same_data(step: Step, sums: tf.Tensor) -> tf.Tensor:
    """1 if all ranks have cut the same global batch. If not, it is 0 on one rank at least."""
    share, size = step.share, step.over.size
    complete = tf.equal(sums[0], tf.cast(share.total, tf.float64))
    same = tf.equal(sums[1], tf.cast(share.fingerprint * size, tf.float64))
    return tf.cast(tf.logical_and(complete, same), tf.float64)
