"""Steps of which each replica of a model runs the model's own: a rank that has the whole model, or
ranks that divide its layers.

    slice of the batch -> the model's train_step ............................ -> logs
                             optimizer.apply: exchange, then the real apply
                          -> sums over replicas where samples meet, with votes and fingerprints

Replicas run it together, see :mod:`.together`. Where an exchange lets them train apart, each makes
its own step instead, of its own samples, and state combines by rules.
"""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf

from tnt_notebook.comm import Communicator, channels, ops
from tnt_notebook.errors import ModelError
from tnt_notebook.keras.losses import outputs_go_to_compiled
from tnt_notebook.parallel.data import InBlocks, Replica, Sharded, Share, samples_of
from tnt_notebook.parallel.exchange import Exchange
from tnt_notebook.parallel.exchange.allreduce import Allreduce
from tnt_notebook.parallel.exchange.local_updates import where
from tnt_notebook.parallel.exchange.named import name_of
from tnt_notebook.parallel.graph.layouts import PART
from tnt_notebook.parallel.layers.divided import DividedLayers
from tnt_notebook.parallel.layers.outputs import Outputs, taken_in_blocks
from tnt_notebook.parallel.layers.ranks import MeshRanks
from tnt_notebook.parallel.step import together
from tnt_notebook.parallel.step.changes import changes_of
from tnt_notebook.parallel.step.combine import Change, combine_changes
from tnt_notebook.parallel.step.interpose import apart, gate, in_python, recorded_assignments
from tnt_notebook.parallel.step.late_logs import LateLogs
from tnt_notebook.parallel.step.local_accumulator import LocalAccumulator
from tnt_notebook.parallel.step.logs import head_of, news_of
from tnt_notebook.parallel.step.step import NEWS, Setting, Step
from tnt_notebook.parallel.step.weights import Weights
from tnt_notebook.plan.mesh import DATA

#: The model's own step, as a function of a batch.
OwnStep = Callable[[Any], Any]


class Replicas:
    """The steps of one model. Made on all ranks at once.

    Attributes:
        layers: how they are divided; None: each rank has the whole model.
        weights: what this rank has of them.
        late: takes the logs, where replicas do not exchange them in every step.
        reads: whether this rank needs the batches.
        stages: of a pipeline, whose ranks trace different steps: there are none.
    """

    reads = True
    stages = None

    def __init__(
        self, setting: Setting, model: keras.Model, ranks: MeshRanks, layers: DividedLayers | None
    ) -> None:
        self._model, self._ranks, self.layers = model, ranks, layers
        self._over = ranks.group([DATA])
        self._begin(setting)

    def _begin(self, setting: Setting, before: Weights | None = None) -> None:
        self.setting, exchange, over = setting, setting.exchange, self._over
        layouts = {} if self.layers is None else self.layers.program.weights
        self.weights = Weights(exchange, self._model, self._ranks, layouts, before=before)
        is_apart = over.size > 1 and not exchange.keeps_ranks_equal
        # Of what the step changes itself, where replicas are not the same after every step.
        self._states = LocalAccumulator(over) if is_apart else None
        self.late: LateLogs | None = None
        if over.size > 1 and (is_apart or exchange.late_logs):
            self.late = LateLogs(setting.over, over, self._model, exchange.ahead, not is_apart)

    def compiled_again(self) -> Replicas:
        """Those of the model with the optimizer and trainable weights that it has now.
        Collective."""
        self.weights.gather()
        anew = copy.copy(self)
        anew._begin(self.setting.anew(), self.weights)
        return anew

    def as_needed(self, data: Sharded) -> Sharded:
        """Input of which this rank gets no more than it needs."""
        return data if self.layers is None else self.layers.in_blocks(data)

    def epoch_begins(self) -> None:
        """The next step is the first of an epoch."""
        if self.late is not None:
            self.late.begin()
        if self._states is not None:
            self._states.begin()

    def settle(self) -> None:
        """Combines what steps have changed since replicas were the same. Collective."""
        if self._states is not None and self._states.has_steps:
            self._states.take()

    # Steps ----------------------------------------------------------------------------------------

    def train_step(self, own_step: OwnStep, batch: Any) -> dict[str, Any]:
        """Logs of a batch ``(slice, Share)``, on one rank of a whole one, after which the model has
        learnt from it."""
        with ops.channels(channels.TRAINING):
            if self.setting.over.size == 1:
                step, logs = self._alone(own_step, batch)
                step.state.count()
                return logs
            step, data = self._step_of(batch)
            own_step = self._on_blocks(own_step, batch, step)
            if self.late is None:
                return self._trained_by_all(step, own_step, data)
            if self._states is None:
                return self._trained_late(step, own_step, data, self.late)
            return self._trained_apart(step, own_step, data, self.late, self._states)

    def test_step(self, own_step: OwnStep, batch: Any) -> dict[str, Any]:
        """Logs of a batch."""
        with ops.channels(channels.EVALUATION):
            if self.setting.over.size == 1:
                return self._alone(own_step, batch)[1]
            step, data = self._step_of(batch)
            return self._by_all(step, self._on_blocks(own_step, batch, step), data)

    def predict_step(self, own_step: OwnStep, batch: Any) -> Any:
        """The model's outputs for the global batch, on all ranks."""
        if self.setting.over.size == 1:
            return own_step(batch)
        with ops.channels(channels.PREDICTION):
            step, data = self._step_of(batch)

            def predicted(given: Any) -> Any:
                with self._divided(batch):
                    outputs = own_step(given)
                for output in tf.nest.flatten(outputs):
                    check_gathered(output)
                return outputs

            if tf.executing_eagerly():
                return predicted(together.whole_batch(step, data))
            return together.run(step, predicted, data)[0]

    def _step_of(self, batch: Any) -> tuple[Step, Any]:
        data, share = batch
        if isinstance(data, InBlocks):
            data = data.batch
        return self.setting.step(self._model, Share(*share), self._over, self.weights), data

    def _alone(self, own_step: OwnStep, batch: Any) -> tuple[Step, dict[str, Any]]:
        """The step of one rank, and what it returns."""
        samples = samples_of(batch)
        share = Share.of(samples, Replica(0, 1), tf.constant(0, tf.int64))
        step = self.setting.step(self._model, share, self._over)
        if not self.setting.exchange.on_one_rank:
            step.exchange = Exchange()
        with gate(step):
            logs = checked_logs(own_step(batch))
        return step, {**logs, NEWS: samples}

    # Layers that are divided ----------------------------------------------------------------------

    def _divided(
        self, batch: Any, outputs: Outputs | None = None
    ) -> contextlib.AbstractContextManager[None]:
        """Inside, layers compute on blocks, if they are divided."""
        if self.layers is None:
            return contextlib.nullcontext()
        by_rank = self.setting.batch_norm == "rank" and self._states is None
        return self.layers.at_work(self.weights.blocks, batch[0], outputs, by_rank)

    def _on_blocks(self, own_step: OwnStep, batch: Any, step: Step) -> OwnStep:
        """A step of the model whose layers compute on blocks, and so do losses and metrics where
        nothing else sees what it returns."""
        if self.layers is None:
            return own_step

        def run(given: Any) -> Any:
            outputs: Outputs | None = None
            in_blocks: contextlib.AbstractContextManager[None] = contextlib.nullcontext()
            if outputs_go_to_compiled(self._model, own_step):
                outputs = Outputs(self._ranks, step.told)
                in_blocks = taken_in_blocks(outputs)
            with in_blocks, self._divided(batch, outputs):
                return own_step(given)

        return run

    # The ways of replicas -------------------------------------------------------------------------

    def _trained_by_all(self, step: Step, own_step: OwnStep, data: Any) -> dict[str, Any]:
        """The training step of one process, which replicas run together."""
        logs = self._by_all(step, own_step, data)
        if self.setting.exchange != Allreduce():  # which has nothing to do with weights set by hand
            self._check_exchanged(step)
        step.state.count()
        return logs

    def _by_all(self, step: Step, own_step: OwnStep, data: Any) -> dict[str, Any]:
        """The step of one process, which replicas run together; what ranks vote for goes to all
        others as well."""
        over, votes = self.setting.over, self.setting.votes
        head, is_of_all = head_of(step.share, votes), step.over is over
        if tf.executing_eagerly():
            logs, sums = _in_python(step, own_step, data), list[tf.Tensor]()
        else:
            logs, sums = together.run(
                step, lambda batch: checked_logs(own_step(batch)), data, head if is_of_all else []
            )
        if not sums:
            sums = ops.allreduce(head, label="allreduce of votes", over=over)
        return {**logs, NEWS: news_of(step.share, over.size, tf.unstack(sums[0]))}

    def _trained_late(
        self, step: Step, own_step: OwnStep, data: Any, late: LateLogs
    ) -> dict[str, Any]:
        """The training step of one process, which replicas run together; what it tells comes
        later."""
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
        self._check_exchanged(step)
        step.state.count()
        return late.of_parts(step.share, others, kept)

    def _trained_apart(
        self, step: Step, own_step: OwnStep, data: Any, late: LateLogs, states: LocalAccumulator
    ) -> dict[str, Any]:
        """The training step of this replica, of its own samples."""
        with apart(step):
            logs = checked_logs(own_step(data))
        self._check_exchanged(step)
        meets = self.setting.exchange.meets(step.exchanging)
        step.state.count()
        of_metrics, others = changes_of(step)
        states.follow(others, step.share)
        states.count(step.share)
        where(tf.convert_to_tensor(meets), states.take)
        return late.of_step(step, logs, of_metrics)

    def _check_exchanged(self, step: Step) -> None:
        """Refuses a step that would train a separate model on each rank."""
        if step.model.trainable_variables and not step.exchanged:
            raise ModelError(
                "train_step passes no gradient to a keras optimizer, so there is nothing that the "
                f"exchange {name_of(self.setting.exchange)} could work on. Use the apply() or "
                "apply_gradients() of a keras.optimizers.Optimizer."
            )


def _in_python(step: Step, own_step: OwnStep, data: Any) -> dict[str, Any]:
    """A step that has no graph: each replica makes the step of one process, with all samples.
    Weights get the mean of the gradients, other state is that of the first: the same bits on
    all."""
    batch = together.whole_batch(step, data)
    step.weight = 1 / step.over.size
    with in_python(step):
        logs = checked_logs(own_step(batch))
    trained = {id(v) for v in step.exchanged}
    assigned = {id(v): v for v in step.assigned if id(v) not in trained}
    changes = [Change(v, step.before[key], "first") for key, v in assigned.items()]
    combine_changes(step.part, changes)
    return logs


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


def checked_logs(logs: Any) -> dict[str, Any]:
    if not isinstance(logs, dict):
        raise ModelError(
            f"train_step and test_step must return a dict of logs, not a {type(logs).__name__}."
        )
    return logs
