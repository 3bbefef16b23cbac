"""A training step of one rank: the actions of its schedule, as one graph.

    post       F0.1      F0.2      B0.0      ...      room for what the next action takes
    take       F0.0      F0.1      F0.2      B0.0     wait until it is there
    call       F0.0      F0.1      F0.2      B0.0     one function, timed
    send            ->        ->        ->        ->  what others take of it
    add                                      B0.0     to the gradients of earlier micro-batches

The graph ties these down in this order, as TensorFlow may have one thread only, and would as well
run the next action before the send that another rank waits for. Every call is one node of a
function traced once, so tracing does not grow with the number of micro-batches. TensorFlow frees a
value when the last action that takes it is done.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import tensorflow as tf

from tnt_notebook.comm import ops
from tnt_notebook.parallel.pipeline.functions import StageFunctions
from tnt_notebook.parallel.pipeline.layout import Place, Plan
from tnt_notebook.parallel.pipeline.messages import Messages
from tnt_notebook.plan.schedule import Action
from tnt_notebook.telemetry.events import EVENT_OF, NOT_TRAINING


@dataclass
class MicroBatch:
    """What a stage is given beside what other stages make.

    Attributes:
        rows: samples; scalar, int64.
        inputs: of the model, by value.
        labels: flat tensors that a stage takes beside values; see :class:`StageFunctions`.
        weight: its part of the loss of the batch; scalar.
        scale: that gradients are multiplied by, against underflow; scalar.
    """

    rows: Any
    inputs: Mapping[int, tf.Tensor]
    labels: Sequence[tf.Tensor]
    weight: Any
    scale: Any = 1.0


@dataclass
class StepResult:
    """What has come of a step on this rank.

    Attributes:
        gradients: by id of the variable; summed over micro-batches, tf.Tensor or tf.IndexedSlices.
        loss: what this rank's stages add to the loss of the batch; scalar, float32.
    """

    gradients: dict[int, Any] = field(default_factory=dict)
    loss: Any = 0.0


def add_step(
    plan: Plan,
    place: Place,
    stages: Mapping[int, StageFunctions],
    micro_batches: Sequence[MicroBatch],
) -> StepResult:
    """Adds a training step of this rank to the graph that is being traced.

    Args:
        stages: the functions of this rank's stages, by number.
        micro_batches: as many as the schedule has.
    """
    step = _Step(plan, place, stages, micro_batches)
    step.run(plan.schedule.actions[place.rank])
    return StepResult(step.gradients, step.loss)


def add_forward(
    plan: Plan,
    place: Place,
    stages: Mapping[int, StageFunctions],
    micro_batches: Sequence[MicroBatch],
) -> tuple[Any, list[list[tf.Tensor]]]:
    """Adds the forward half of a step, for evaluation and prediction.

    Returns:
        What this rank's stages add to the loss of the batch; and of each micro-batch what the last
        stage gives, if it is here.
    """
    step = _Step(plan, place, stages, micro_batches)
    micros = range(len(micro_batches))
    own = plan.schedule.stages_of(place.rank)
    results = step.run([Action("F", number, micro) for number in own for micro in micros])
    return step.loss, results[-len(micros) :]


class _Step:
    """A step while its graph is built."""

    def __init__(
        self,
        plan: Plan,
        place: Place,
        stages: Mapping[int, StageFunctions],
        micro_batches: Sequence[MicroBatch],
    ) -> None:
        self.place, self.stages, self.micro_batches = place, stages, micro_batches
        model = next(iter(stages.values())).model
        rows = [batch.rows for batch in micro_batches]
        self._messages = Messages(plan, place, model.graph, model.trained, rows)
        self.gradients: dict[int, Any] = {}
        self.loss: Any = tf.constant(0.0)
        # What functions have taken and given, by stage, micro-batch and name.
        self._values: dict[tuple[int, int], dict[str, Any]] = defaultdict(dict)
        # What the next call waits for, beside its values. The first: that there is a batch.
        self._before: list[Any] = [tf.convert_to_tensor(micro_batches[0].rows)]

    def run(self, actions: Sequence[Action]) -> list[list[tf.Tensor]]:
        """Adds actions; gives of each what its stage predicts, if it does."""
        self._before = self._messages.post(actions[0], self._before)
        results = []
        for action, following in zip(actions, [*actions[1:], None], strict=True):
            if following is not None:
                self._before = self._messages.post(following, self._before)
            results.append(self._act(action))
        return results

    def _act(self, action: Action) -> list[tf.Tensor]:
        stage, micro = self.stages[action.stage], action.micro
        values = self._values[action.stage, micro]
        if action.kind == "F":
            self._take_inputs(stage, micro, values)
        elif action.kind in "BI":
            self._take_gradients(stage, micro, values)
        part = stage.parts[action.kind]
        if action.kind != "F" and not part.gives:
            return []  # nothing is trained here, nor before
        taken = [values[name] for name in part.takes]
        with tf.control_dependencies([*self._before, *taken]):
            begin = ops.clock(over=self.place.over)
        with tf.control_dependencies([begin]):
            made = part.function(*taken)
        values.update(zip(part.gives, made, strict=True))
        sent = []
        if action.kind == "F":
            self._count_loss(stage, micro, values)
            sent = self._send(stage, micro, values, forward=True)
        elif action.kind in "BI":
            sent = self._send(stage, micro, values, forward=False)
        added = []
        if action.kind in "BW":
            with tf.control_dependencies(sent):
                added = self._add_up(stage, values)
        with tf.control_dependencies([*made[:1], *sent, *added]):
            number = action.stage << 16 | micro | (0 if stage.training else NOT_TRAINING)
            end = ops.clock(begin, EVENT_OF[action.kind], number, self.place.over)
        self._before = [end.op]
        return [values[name] for name in stage.results]

    def _count_loss(self, stage: StageFunctions, micro: int, values: dict[str, Any]) -> None:
        if stage.loss is not None:
            weight = tf.cast(self.micro_batches[micro].weight, tf.float32)
            self.loss += tf.cast(values[stage.loss], tf.float32) * weight

    def _take_inputs(self, stage: StageFunctions, micro: int, values: dict[str, Any]) -> None:
        batch = self.micro_batches[micro]
        for value in stage.model.stage.inputs:
            values[stage.taken[value]] = batch.inputs[value]
        values.update(zip(stage.labels, batch.labels, strict=False))  # not all for all stages
        for message in self._messages.to(stage.number, micro, forward=True):
            name = stage.taken[message.edge.value]
            if self._messages.stays(message):
                maker = self.stages[message.sender]
                values[name] = self._values[maker.number, micro][maker.given[message.edge.value]]
            else:
                values[name] = self._messages.take(message)

    def _take_gradients(self, stage: StageFunctions, micro: int, values: dict[str, Any]) -> None:
        parts: dict[str, list[tf.Tensor]] = defaultdict(list)
        for message in self._messages.to(stage.number, micro, forward=False):
            value = message.edge.value
            if self._messages.stays(message):
                user = self.stages[message.sender]
                gradient = self._values[user.number, micro][f"d{user.taken[value]}"]
            else:
                gradient = self._messages.take(message)
            parts[f"d{stage.given[value]}"].append(gradient)
        values.update((name, tf.add_n(summands)) for name, summands in parts.items())
        if stage.loss is not None:
            batch, loss = self.micro_batches[micro], values[stage.loss]
            values[f"d{stage.loss}"] = tf.cast(batch.weight * batch.scale, loss.dtype)

    def _send(
        self, stage: StageFunctions, micro: int, values: dict[str, Any], forward: bool
    ) -> list[tf.Operation]:
        sent = []
        for message in self._messages.of(stage.number, micro, forward):
            if not self._messages.stays(message):
                value = message.edge.value
                name = stage.given[value] if forward else f"d{stage.taken[value]}"
                sent += self._messages.send(message, values[name])
        return sent

    def _add_up(self, stage: StageFunctions, values: dict[str, Any]) -> list[tf.Tensor]:
        sums = []
        for i, variable in enumerate(stage.variables):
            gradient = values.get(f"dw{i}")
            if f"dw{i}.values" in values:
                rows = tf.constant([*map(int, variable.shape)], tf.int64)
                gradient = tf.IndexedSlices(values[f"dw{i}.values"], values[f"dw{i}.indices"], rows)
            if gradient is not None:
                total = _sum(self.gradients.get(id(variable)), gradient)
                self.gradients[id(variable)] = total
                sums.append(total.values if isinstance(total, tf.IndexedSlices) else total)
        return sums


def _sum(a: Any, b: Any) -> Any:
    """Of dense tensors, or of tf.IndexedSlices: then the rows of both."""
    if a is None:
        return b
    if isinstance(a, tf.IndexedSlices) and isinstance(b, tf.IndexedSlices):
        return tf.IndexedSlices(
            tf.concat([a.values, b.values], 0), tf.concat([a.indices, b.indices], 0), b.dense_shape
        )
    return tf.convert_to_tensor(a) + tf.convert_to_tensor(b)
