"""The training step of one rank that has the whole model, made of the model's own step.

    slice of the batch -> the model's train_step ............................ -> logs
                             optimizer.apply: exchange, then the real apply
                          -> sums over ranks where samples meet, with votes and fingerprints

Ranks run it together, see :mod:`tnt_notebook.parallel.together`. Where an exchange lets them train
apart, each makes its own step instead, of its own samples, and state combines by rules.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf

from tnt_notebook.comm import Communicator, channels, ops
from tnt_notebook.errors import ModelError
from tnt_notebook.parallel import together
from tnt_notebook.parallel.changes import changes_of
from tnt_notebook.parallel.combine import Change, combine_changes
from tnt_notebook.parallel.data import Share, samples_of
from tnt_notebook.parallel.exchange import Exchange
from tnt_notebook.parallel.exchange.allreduce import Allreduce
from tnt_notebook.parallel.exchange.apart import where
from tnt_notebook.parallel.exchange.named import name_of
from tnt_notebook.parallel.graph.layouts import PART
from tnt_notebook.parallel.interpose import apart, gate, in_python, recorded_assignments
from tnt_notebook.parallel.late_logs import LateLogs
from tnt_notebook.parallel.logs import head_of, news_of
from tnt_notebook.parallel.pool import Pool
from tnt_notebook.parallel.step import NEWS, Setting, Step


def train_step(
    setting: Setting,
    model: keras.Model,
    own_step: Callable[[Any], Any],
    late: LateLogs | None,
    states: Pool | None,
) -> Callable[[Any], dict[str, Any]]:
    """A ``train_step`` for batches of ``(slice, Share)``; on one rank for whole ones.

    Args:
        own_step: the model's.
        late: takes the logs, where ranks do not exchange them in every step.
        states: of what the step changes itself, where ranks are not the same after every step.
    """

    def run_alone(batch: Any) -> dict[str, Any]:
        step, logs = _alone(setting, model, own_step, batch, channels.TRAINING)
        step.kept.count()
        return logs

    def run(batch: Any) -> dict[str, Any]:
        data, share = batch
        step = setting.step(model, Share(*share))
        with ops.channels(channels.TRAINING):
            if late is None:
                return trained_by_all(setting, step, own_step, data)
            if states is None:
                return _trained_late(step, own_step, data, late)
            return _trained_apart(setting, step, own_step, data, late, states)

    return run if setting.over.size > 1 else run_alone


def _trained_late(
    step: Step, own_step: Callable[[Any], Any], data: Any, late: LateLogs
) -> dict[str, Any]:
    """The training step of one process, which ranks run together; what it tells comes later."""
    others: dict[str, Any]
    kept: list[keras.Variable] = []
    if tf.executing_eagerly():
        logs = _in_python(step, own_step, data)
        others = late.others(logs, {id(v) for v in step.assigned})
        others = {name: tf.cast(v, tf.float64) / step.over.size for name, v in others.items()}
    else:

        def told(batch: Any) -> dict[str, Any]:
            changed: list[keras.Variable] = []
            with recorded_assignments(changed.append):
                logs = checked_logs(own_step(batch))
            return late.others(logs, {id(v) for v in changed})

        others, _ = together.run(step, told, data, kept=kept, returned=PART)
    check_exchanged(step)
    step.kept.count()
    return late.of_parts(step.share, others, kept)


def _trained_apart(
    setting: Setting,
    step: Step,
    own_step: Callable[[Any], Any],
    data: Any,
    late: LateLogs,
    states: Pool,
) -> dict[str, Any]:
    """The training step of this rank, of its own samples."""
    with apart(step):
        logs = checked_logs(own_step(data))
    check_exchanged(step)
    meets = setting.exchange.meets(step.exchanging)
    step.kept.count()
    of_metrics, others = changes_of(step)
    states.follow(others, step.share)
    states.count(step.share)
    where(tf.convert_to_tensor(meets), states.take)
    return late.of_step(step, logs, of_metrics)


def trained_by_all(
    setting: Setting, step: Step, own_step: Callable[[Any], Any], data: Any
) -> dict[str, Any]:
    """The training step of one process, which ranks run together."""
    logs = by_all(setting, step, own_step, data)
    if setting.exchange != Allreduce():  # which has nothing to do with weights set by hand
        check_exchanged(step)
    step.kept.count()
    return logs


def by_all(
    setting: Setting, step: Step, own_step: Callable[[Any], Any], data: Any
) -> dict[str, Any]:
    """The step of one process, which ranks run together: those of ``step.over``, each with samples
    of its own; what they vote for goes to all others as well."""
    head, is_of_all = head_of(step.share, setting.votes), step.over is setting.over
    if tf.executing_eagerly():
        logs, sums = _in_python(step, own_step, data), list[tf.Tensor]()
    else:
        logs, sums = together.run(
            step, lambda batch: checked_logs(own_step(batch)), data, head if is_of_all else []
        )
    if not sums:
        sums = ops.allreduce(head, label="allreduce of votes", over=setting.over)
    return {**logs, NEWS: news_of(step.share, setting.over.size, tf.unstack(sums[0]))}


def _in_python(step: Step, own_step: Callable[[Any], Any], data: Any) -> dict[str, Any]:
    """A step that has no graph: each rank makes the step of one process, with all samples. Weights
    get the mean of the ranks' gradients, other state is rank 0's: the same bits on all."""
    batch = together.whole_batch(step, data)
    step.weight = 1 / step.over.size
    with in_python(step):
        logs = checked_logs(own_step(batch))
    trained = {id(v) for v in step.exchanged}
    assigned = {id(v): v for v in step.assigned if id(v) not in trained}
    changes = [Change(v, step.before[key], "first") for key, v in assigned.items()]
    combine_changes(step.part, changes)
    return logs


def test_step(
    setting: Setting, model: keras.Model, own_step: Callable[[Any], Any]
) -> Callable[[Any], dict[str, Any]]:
    """The same for evaluation."""

    def run_alone(batch: Any) -> dict[str, Any]:
        return _alone(setting, model, own_step, batch, channels.EVALUATION)[1]

    def run(batch: Any) -> dict[str, Any]:
        data, share = batch
        step = setting.step(model, Share(*share))
        with ops.channels(channels.EVALUATION):
            return by_all(setting, step, own_step, data)

    return run if setting.over.size > 1 else run_alone


def _alone(
    setting: Setting,
    model: keras.Model,
    own_step: Callable[[Any], Any],
    batch: Any,
    over_channels: channels.Range,
) -> tuple[Step, dict[str, Any]]:
    """The step of one rank, and what it returns."""
    samples = samples_of(batch)
    step = setting.step(model, Share(samples, samples, tf.constant(0, tf.int64)))
    if not setting.exchange.on_one_rank:
        step.exchange = Exchange()
    with ops.channels(over_channels), gate(step):
        logs = checked_logs(own_step(batch))
    return step, {**logs, NEWS: samples}


def predict_step(
    setting: Setting, model: keras.Model, own_step: Callable[[Any], Any]
) -> Callable[[Any], Any]:
    """A ``predict_step`` for batches of ``(slice, Share)`` that gives all ranks all outputs."""

    def run(batch: Any) -> Any:
        data, share = batch
        step = setting.step(model, Share(*share))
        with ops.channels(channels.PREDICTION):
            return predicted_by_all(step, own_step, data)

    return run if setting.over.size > 1 else own_step


def predicted_by_all(step: Step, own_step: Callable[[Any], Any], data: Any) -> Any:
    """The outputs of a step that ranks run together, whole on each."""
    if tf.executing_eagerly():
        return own_step(together.whole_batch(step, data))
    return together.run(step, lambda batch: _checked(own_step(batch)), data)[0]


def _checked(outputs: Any) -> Any:
    for output in tf.nest.flatten(outputs):
        check_gathered(output)
    return outputs


def gather_rows(output: tf.Tensor, over: Communicator) -> tf.Tensor:
    check_gathered(output)
    return ops.allgather(output, label="allgather of predictions", over=over)


def check_gathered(output: Any) -> None:
    """Raises ModelError for predictions that cannot be brought to all ranks."""
    if isinstance(output, (tf.RaggedTensor, tf.SparseTensor)):
        raise ModelError(
            "Predictions that are ragged or sparse cannot be gathered from the ranks: let the "
            "model end in a dense tensor, or call predict without tnt_notebook."
        )
    if output.dtype not in ops.MOVED_DTYPES:
        raise ModelError(
            f"Predictions of dtype {output.dtype.name} cannot be gathered from the ranks."
        )


def check_exchanged(step: Step) -> None:
    """Refuses a step that would train a separate model on each rank."""
    trainable = step.model.trainable_variables
    if trainable and not step.exchanged:
        raise ModelError(
            "train_step passes no gradient to a keras optimizer, so there is nothing that the "
            f"exchange {name_of(step.exchange)} could work on. Use the apply() or "
            "apply_gradients() of a keras.optimizers.Optimizer."
        )


def checked_logs(logs: Any) -> dict[str, Any]:
    if not isinstance(logs, dict):
        raise ModelError(
            f"train_step and test_step must return a dict of logs, not a {type(logs).__name__}."
        )
    return logs
