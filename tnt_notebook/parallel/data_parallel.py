"""The training step of one rank that has the whole model, made of the model's own step.

    slice of the batch -> the model's train_step ............................ -> logs
                             optimizer.apply: exchange, then the real apply
                          -> exchange of what the step did to other variables
                          -> exchange of metric states, votes and fingerprints

While the model's step runs (is traced), a few functions of Keras are interposed on: see
:mod:`tnt_notebook.parallel.interpose`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf

from tnt_notebook.comm import World, channels, ops
from tnt_notebook.errors import ModelError
from tnt_notebook.parallel.data import Share, samples_of
from tnt_notebook.parallel.interpose import gate, interposed, unchanged
from tnt_notebook.parallel.logs import global_logs
from tnt_notebook.parallel.step import NEWS, Setting, Step


def whole_batch_step(
    setting: Setting, model: keras.Model, own_step: Callable[[Any], Any], trains: bool
) -> Callable[[Any], dict[str, Any]]:
    """A ``train_step`` or ``test_step`` for batches of ``(slice, Share)``; ``own_step`` is the
    model's."""
    over_channels = channels.TRAINING if trains else channels.EVALUATION

    def run_alone(batch: Any) -> dict[str, Any]:
        samples = samples_of(batch)
        share = Share(samples, samples, tf.constant(0, tf.int64))
        with gate(Step(setting.over, unchanged, model, share)):
            return {**_checked_logs(own_step(batch)), NEWS: samples}

    def run(batch: Any) -> dict[str, Any]:
        data, share = batch
        step = Step(setting.over, setting.exchange, model, Share(*share))
        before = [(v, tf.identity(v.value)) for v in model.metrics_variables]
        with ops.channels(over_channels), interposed(step):
            logs = _checked_logs(own_step(data))
            if trains:
                _check_exchanged(step)
                _average_other_variables(step)
            return global_logs(step, logs, before, setting.votes)

    return run if setting.over.size > 1 else run_alone


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
