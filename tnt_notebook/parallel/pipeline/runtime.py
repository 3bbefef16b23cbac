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
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import keras
import tensorflow as tf

from tnt_notebook.comm import ops
from tnt_notebook.keras.tensorflow import wide
from tnt_notebook.parallel.exchange.sparse_rows import are_distinct, summed_by_row
from tnt_notebook.parallel.pipeline.messages import Message, Messages
from tnt_notebook.parallel.pipeline.place import Place, Plan
from tnt_notebook.parallel.pipeline.stage import StageFunctions
from tnt_notebook.plan.schedule import Action
from tnt_notebook.telemetry.events import EVENT_OF, NOT_TRAINING


@dataclass
class MicroBatch:
    """What a stage is given beside what other stages make.

    Attributes:
        rows: samples; scalar, int64.
        inputs: of the model, by value.
        labels: flat tensors that a stage takes beside values; see :class:`StageFunctions`.
        scale: that gradients are multiplied by, against underflow; scalar.
    """

    rows: Any
    inputs: Mapping[int, tf.Tensor]
    labels: Sequence[tf.Tensor]
    scale: Any = 1.0


#: Of a step whose micro-batches have gone forward a part of the loss, and gradients for each.
WholeLoss = Callable[["PipelineStep"], tuple[tf.Tensor, list[list[tf.Tensor]]]]


class PipelineStep:
    """A step of this rank, added to the graph that is being traced.

    Args:
        stages: the functions of this rank's stages, by number.
        micro_batches: as many as the schedule has.
        whole_loss: of what the last stage has kept of all micro-batches, a part of the loss, and
            gradients for each; None: it has losses of micro-batches.

    Attributes:
        results: of each micro-batch, what the last stage gives as it is, if it is here.
        alike: by id, variables whose gradients are slices of rows that all micro-batches have, in
            the same order: of positions, and of no sample.
        loss: what this rank's stages add to that of the batch, a scalar, floatx, at least float32.
    """

    def __init__(
        self,
        plan: Plan,
        place: Place,
        stages: Mapping[int, StageFunctions],
        micro_batches: Sequence[MicroBatch],
        whole_loss: WholeLoss | None = None,
    ) -> None:
        self._schedule, self._place = plan.schedule, place
        self.stages, self.micro_batches = stages, micro_batches
        model = next(iter(stages.values())).model
        rows = [batch.rows for batch in micro_batches]
        self._messages = Messages(plan, place, model.graph, model.trained, rows)
        self._whole_loss = whole_loss
        self.results: dict[int, list[tf.Tensor]] = {}
        self.alike = set[int]()
        # By id of the variable and stage, and whether all micro-batches have the same rows.
        self._gradients: dict[tuple[int, int], tuple[Any, bool]] = {}
        self.loss: Any = tf.zeros((), wide(keras.config.floatx()))
        # What functions have taken and given, by stage, micro-batch and name.
        self._values: dict[tuple[int, int], dict[str, Any]] = defaultdict(dict)
        # What the next call waits for, beside its values. The first: that there is a batch.
        self._before: list[Any] = [tf.convert_to_tensor(micro_batches[0].rows)]

    def train(self) -> dict[int, Any]:
        """Adds forward and backward. Gives gradients by id of the variable, summed over
        micro-batches, tf.Tensor or tf.IndexedSlices."""
        self._run(self._schedule.actions[self._place.rank])
        gradients: dict[int, Any] = {}
        for (variable, _), (gradient, _) in self._gradients.items():
            gradients[variable] = _sum(gradients.get(variable), gradient)
        others = {variable for (variable, _), (_, alike) in self._gradients.items() if not alike}
        self.alike = gradients.keys() - others
        return gradients

    def forward(self) -> None:
        """Adds the forward half, for evaluation and prediction."""
        micros = range(len(self.micro_batches))
        own = self._schedule.stages_of(self._place.rank)
        self._run([Action("F", number, micro) for number in own for micro in micros])

    def _run(self, actions: Sequence[Action]) -> None:
        self._before = self._messages.post(actions[0], self._before)
        for action, following in zip(actions, [*actions[1:], None], strict=True):
            if following is not None:
                self._before = self._messages.post(following, self._before)
            self._act(action)

    def _act(self, action: Action) -> None:
        stage, micro = self.stages[action.stage], action.micro
        if action.kind in "BI" and stage.model.is_last and self._whole_loss is not None:
            self._end(stage, self._whole_loss)
            self._whole_loss = None
        values = self._values[action.stage, micro]
        if action.kind == "F":
            self._take_inputs(stage, micro, values)
        elif action.kind in "BI":
            self._take_gradients(stage, micro, values)
        part = stage.parts[action.kind]
        if action.kind != "F" and not part.gives:
            return  # nothing is trained here, nor before
        taken = [values[name] for name in part.takes]
        with tf.control_dependencies([*self._before, *taken]):
            begin = ops.clock(over=self._place.over)
        with tf.control_dependencies([begin]):
            made = part.function(*taken)
        values.update(zip(part.gives, made, strict=True))
        if action.kind == "F":
            self._count_loss(stage, values)
        sent = self._send(stage, micro, values, action.kind == "F") if action.kind != "W" else []
        added = []
        if action.kind in "BW":
            with tf.control_dependencies(sent):
                added = self._add_up(stage, values)
        with tf.control_dependencies([*made[:1], *sent, *added]):
            number = action.stage << 16 | micro | (0 if stage.training else NOT_TRAINING)
            end = ops.clock(begin, EVENT_OF[action.kind], number, self._place.over)
        self._before = [end.op]
        if action.kind == "F" and stage.results:
            self.results[micro] = [values[name] for name in stage.results]

    def _end(self, stage: StageFunctions, whole_loss: WholeLoss) -> None:
        """Gives the last stage the gradients of a loss of all outputs."""
        loss, gradients = whole_loss(self)
        self.loss += tf.cast(loss, self.loss.dtype)
        for micro, own in enumerate(gradients):
            names = (f"d{name}" for name in stage.results)
            self._values[stage.number, micro].update(zip(names, own, strict=True))

    def _count_loss(self, stage: StageFunctions, values: dict[str, Any]) -> None:
        if stage.loss is not None:
            self.loss += tf.cast(values[stage.loss], self.loss.dtype)

    def _take_inputs(self, stage: StageFunctions, micro: int, values: dict[str, Any]) -> None:
        batch = self.micro_batches[micro]
        for value in stage.model.stage.inputs:
            values[stage.taken[value]] = batch.inputs[value]
        values.update(zip(stage.labels, batch.labels, strict=False))  # not all for all stages
        for message in self._messages.to(stage.number, micro, forward=True):
            values[stage.taken[message.edge.value]] = self._arrived(message)

    def _arrived(self, message: Message) -> tf.Tensor:
        """What a stage takes of another one, of this rank or not."""
        if not self._messages.stays(message):
            return self._messages.take(message)
        sender = self.stages[message.sender]
        return self._values[sender.number, message.micro][_name_in(sender, message)]

    def _take_gradients(self, stage: StageFunctions, micro: int, values: dict[str, Any]) -> None:
        parts: dict[str, list[tf.Tensor]] = defaultdict(list)
        for message in self._messages.to(stage.number, micro, forward=False):
            parts[f"d{stage.given[message.edge.value]}"].append(self._arrived(message))
        values.update((name, tf.add_n(summands)) for name, summands in parts.items())
        if stage.loss is not None:
            batch, loss = self.micro_batches[micro], values[stage.loss]
            values[f"d{stage.loss}"] = tf.cast(batch.scale, loss.dtype)

    def _send(
        self, stage: StageFunctions, micro: int, values: dict[str, Any], forward: bool
    ) -> list[tf.Operation]:
        sent = []
        for message in self._messages.of(stage.number, micro, forward):
            if not self._messages.stays(message):
                sent += self._messages.send(message, values[_name_in(stage, message)])
        return sent

    def _add_up(self, stage: StageFunctions, values: dict[str, Any]) -> list[tf.Tensor]:
        sums = []
        for i, variable in enumerate(stage.variables):
            gradient, key = values.get(f"dw{i}"), (id(variable), stage.number)
            if f"dw{i}.values" in values:
                gradient = _slices(values, f"dw{i}", variable)
            if gradient is not None:
                before, alike = self._gradients.get(key, (None, f"dw{i}.positions" in values))
                total = _sum_of_alike(before, gradient) if alike else _sum(before, gradient)
                self._gradients[key] = total, alike
                sums.append(total.values if isinstance(total, tf.IndexedSlices) else total)
        return sums


def _name_in(sender: StageFunctions, message: Message) -> str:
    """What the stage that sends a value, or its gradient, calls it."""
    value = message.edge.value
    return sender.given[value] if message.forward else f"d{sender.taken[value]}"


def _slices(values: dict[str, Any], name: str, variable: keras.Variable) -> tf.IndexedSlices:
    shape = tf.constant([*map(int, variable.shape)], tf.int64)
    indices = values.get(f"{name}.indices", values.get(f"{name}.positions"))
    if indices is None:
        return summed_by_row(
            tf.IndexedSlices(values[f"{name}.values"], values[f"{name}.rows"], shape)
        )
    return tf.IndexedSlices(values[f"{name}.values"], indices, shape)


def _sum(a: Any, b: Any) -> Any:
    """Of dense tensors, or of tf.IndexedSlices: then the rows of both."""
    if a is None:
        return b
    if isinstance(a, tf.IndexedSlices) and isinstance(b, tf.IndexedSlices):
        both = tf.IndexedSlices(
            tf.concat([a.values, b.values], 0), tf.concat([a.indices, b.indices], 0), b.dense_shape
        )
        return summed_by_row(both) if are_distinct(a) and are_distinct(b) else both
    return tf.convert_to_tensor(a) + tf.convert_to_tensor(b)


def _sum_of_alike(a: tf.IndexedSlices | None, b: tf.IndexedSlices) -> tf.IndexedSlices:
    """Of slices that have the same rows."""
    return b if a is None else tf.IndexedSlices(a.values + b.values, b.indices, b.dense_shape)
