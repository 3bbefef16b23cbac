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
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any

import keras
import tensorflow as tf

from tnt_notebook.comm import World, channels, ops
from tnt_notebook.parallel.pipeline.parts import parts_of
from tnt_notebook.parallel.pipeline.stage import StageModel
from tnt_notebook.plan.partition import Edge, Partition
from tnt_notebook.plan.schedule import Action, Schedule
from tnt_notebook.telemetry.events import EVENT_OF, NOT_TRAINING

#: Messages of an edge under way at a time; each holds memory of the backend.
_IN_FLIGHT = 2


@dataclass(frozen=True)
class Place:
    """This rank in its pipeline.

    Attributes:
        ranks: the ranks of the pipeline, in the world, by their rank in the schedule.
        rank: of this process in the schedule.
    """

    over: World
    ranks: tuple[int, ...]
    rank: int


@dataclass(frozen=True)
class Plan:
    """What the ranks of a pipeline have agreed on."""

    cut: Partition
    schedule: Schedule
    recompute: bool = False


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


#: What the last stage does with the model's outputs: gives tensors that it adds up (training,
#: evaluation), or gives as they are (prediction).
Finish = Callable[[Any, list[tf.Tensor]], list[tf.Tensor]]


class StageFunctions:
    """The traced parts of a stage, and what their arguments and results are called.

    Args:
        labels: specs of what ``finish`` takes beside the model's outputs. The first is the number
            of samples that count, int64: with 0, the stage's state stays as it was.
        finish: see :data:`Finish`.
        kinds: of the parts: ``"FB"`` or ``"FIW"`` in training, else ``"F"``.
        state: variables that ``finish`` changes.

    Attributes:
        taken, given: names of values; ``d`` before them is their gradient's.
        labels: names of the labels.
        loss: name of the loss, if the stage adds to it.
        training: whether they are of a training step.
        results: names of what ``finish`` gives in prediction.
    """

    def __init__(
        self,
        model: StageModel,
        labels: Sequence[tf.TensorSpec],
        finish: Finish,
        kinds: str = "F",
        *,
        recompute: bool = False,
        training: bool = False,
        predicts: bool = False,
        state: Sequence[keras.Variable] = (),
    ) -> None:
        self.model = model
        self.number, self.training = model.number, training
        self.variables = model.trainable_variables()
        n = len(model.values)
        changing = [*model.state(), *state] if not predicts else []
        last: list[tf.Tensor] = []

        def forward(tensors: list[tf.Tensor]) -> list[tf.Tensor]:
            nonlocal last
            before = [tf.identity(v.value) for v in changing]
            values, losses = model.forward(tensors[:n], training)
            given = [values[v] for v in model.stage.gives]
            finished = finish(model.outputs(values), tensors[n:]) if model.is_last else []
            if predicts:
                last = finished
            else:
                losses += finished
                last = [tf.add_n(losses)] if losses else []
            for variable, value in zip(changing, before, strict=True):
                # A micro-batch without samples works on a borrowed one.
                variable.value.assign(tf.where(tensors[n] > 0, variable.value, value))
            return [*given, *last]

        self.parts = parts_of(
            forward,
            [*map(model.graph.spec, model.values), *labels],
            [v.value for v in self.variables],
            kinds,
            recompute,
            f"stage_{model.number}",
            differentiated=[i for i, v in enumerate(model.values) if v in model.trained],
        )
        self.taken = {value: f"x{i}" for i, value in enumerate(model.values)}
        self.given = {value: f"y{i}" for i, value in enumerate(model.stage.gives)}
        self.labels = [f"x{n + i}" for i in range(len(labels))]
        after = [f"y{len(self.given) + i}" for i in range(len(last))]
        self.loss = after[0] if after and not predicts else None
        self.results = after if predicts else []


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
        self.plan, self.place, self.stages = plan, place, stages
        self.micro_batches = micro_batches
        model = next(iter(stages.values())).model
        self._graph, self._trained = model.graph, model.trained
        self.gradients: dict[int, Any] = {}
        self.loss: Any = tf.constant(0.0)
        # What functions have taken and given, by stage, micro-batch and name.
        self._values: dict[tuple[int, int], dict[str, Any]] = defaultdict(dict)
        self._posted: dict[tuple[int, int, bool], ops.Posted] = {}
        self._shapes: dict[tuple[int, int], tf.Tensor] = {}  # that values have told, by edge
        # What the next call waits for, beside its values. The first: that there is a batch.
        self._before: list[Any] = [tf.convert_to_tensor(micro_batches[0].rows)]
        self._in_turns = {
            (number, forward): self._come_in_order(edge, forward)
            for number, edge in enumerate(plan.cut.edges)
            for forward in (True, False)
        }

    def run(self, actions: Sequence[Action]) -> list[list[tf.Tensor]]:
        """Adds actions; gives of each what its stage predicts, if it does."""
        self._post(actions[0])
        results = []
        for action, following in zip(actions, [*actions[1:], None], strict=True):
            if following is not None:
                self._post(following)
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
            sent = self._send_outputs(stage, micro, values)
        elif action.kind in "BI":
            sent = self._send_gradients(stage, micro, values)
        added = []
        if action.kind in "BW":
            with tf.control_dependencies(sent):
                added = self._add_up(stage, values)
        with tf.control_dependencies([*made[:1], *sent, *added]):
            number = action.stage << 16 | micro | (0 if stage.training else NOT_TRAINING)
            end = ops.clock(begin, EVENT_OF[action.kind], number, self.place.over)
        self._before = [end.op]
        return [values[name] for name in stage.results]

    def _post(self, action: Action) -> None:
        """Makes room for what an action takes from other ranks, before the next call."""
        forward = action.kind == "F"
        with tf.control_dependencies(self._before):
            for number, edge in self._edges_into(action):
                shape = self._shape_of(edge, action.micro)
                if shape is None and not forward:
                    shape = self._shapes.pop((number, action.micro))
                first = posted = None
                if shape is None:
                    # It comes first. As soon as it is here there is room for what follows.
                    axes = len(self._graph.shapes[edge.value])
                    first = self._post_one(number, edge, action.micro, forward, [axes], tf.int64)
                    shape = ops.take(first)
                dtype = self._graph.specs[edge.value].dtype
                posted = self._post_one(number, edge, action.micro, forward, shape, dtype)
                self._posted[number, action.micro, forward] = posted
                self._before = [*self._before, (first or posted).ticket.op]

    def _post_one(
        self, number: int, edge: Edge, micro: int, forward: bool, shape: Any, dtype: Any
    ) -> ops.Posted:
        peer = self._rank_of(edge.maker if forward else edge.user)
        with self._channel(number, micro, forward):
            return ops.post(shape, dtype, peer, self._label(edge, micro, forward), self.place.over)

    def _shape_of(self, edge: Edge, micro: int) -> list[Any] | None:
        """Of a value, where both ends know it without a message."""
        return self._graph.shape(edge.value, self.micro_batches[micro].rows)

    def _edges_into(self, action: Action) -> Iterator[tuple[int, Edge]]:
        """By which an action takes values from other ranks."""
        if action.kind == "F":
            for number, edge in self._edges(user=action.stage):
                if not self._is_here(edge.maker):
                    yield number, edge
        elif action.kind in "BI":
            for number, edge in self._edges(maker=action.stage):
                if not self._is_here(edge.user) and self._has_gradient(edge):
                    yield number, edge

    def _count_loss(self, stage: StageFunctions, micro: int, values: dict[str, Any]) -> None:
        if stage.loss is not None:
            weight = tf.cast(self.micro_batches[micro].weight, tf.float32)
            self.loss += tf.cast(values[stage.loss], tf.float32) * weight

    def _take_inputs(self, stage: StageFunctions, micro: int, values: dict[str, Any]) -> None:
        batch = self.micro_batches[micro]
        for value in stage.model.stage.inputs:
            values[stage.taken[value]] = batch.inputs[value]
        values.update(zip(stage.labels, batch.labels, strict=False))  # not all for all stages
        for number, edge in self._edges(user=stage.number):
            name = stage.taken[edge.value]
            if self._is_here(edge.maker):
                maker = self.stages[edge.maker]
                values[name] = self._values[edge.maker, micro][maker.given[edge.value]]
            else:
                values[name] = self._take(number, edge, micro, forward=True)

    def _send_outputs(
        self, stage: StageFunctions, micro: int, values: dict[str, Any]
    ) -> list[tf.Operation]:
        sent = []
        for number, edge in self._edges(maker=stage.number):
            if self._is_here(edge.user):
                continue
            value = values[stage.given[edge.value]]
            if self._shape_of(edge, micro) is None:
                shape = tf.shape(value, tf.int64)
                sent.append(self._send(shape, number, edge, micro, forward=True))
                self._shapes[number, micro] = shape  # that of its gradient too
            sent.append(self._send(value, number, edge, micro, forward=True))
        return sent

    def _take_gradients(self, stage: StageFunctions, micro: int, values: dict[str, Any]) -> None:
        parts: dict[str, list[tf.Tensor]] = defaultdict(list)
        for number, edge in self._edges(maker=stage.number):
            if not self._has_gradient(edge):
                continue
            if self._is_here(edge.user):
                user = self.stages[edge.user]
                gradient = self._values[edge.user, micro][f"d{user.taken[edge.value]}"]
            else:
                gradient = self._take(number, edge, micro, forward=False)
            parts[f"d{stage.given[edge.value]}"].append(gradient)
        values.update((name, tf.add_n(summands)) for name, summands in parts.items())
        if stage.loss is not None:
            batch, loss = self.micro_batches[micro], values[stage.loss]
            values[f"d{stage.loss}"] = tf.cast(batch.weight * batch.scale, loss.dtype)

    def _send_gradients(
        self, stage: StageFunctions, micro: int, values: dict[str, Any]
    ) -> list[tf.Operation]:
        return [
            self._send(values[f"d{stage.taken[edge.value]}"], number, edge, micro, forward=False)
            for number, edge in self._edges(user=stage.number)
            if not self._is_here(edge.maker) and self._has_gradient(edge)
        ]

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

    def _has_gradient(self, edge: Edge) -> bool:
        return edge.value in self._trained

    def _edges(
        self, maker: int | None = None, user: int | None = None
    ) -> Iterator[tuple[int, Edge]]:
        for number, edge in enumerate(self.plan.cut.edges):
            if edge.maker == maker or edge.user == user:
                yield number, edge

    def _is_here(self, stage: int) -> bool:
        return self.plan.schedule.rank_of[stage] == self.place.rank

    def _send(
        self, tensor: tf.Tensor, number: int, edge: Edge, micro: int, forward: bool
    ) -> tf.Operation:
        peer = self._rank_of(edge.user if forward else edge.maker)
        with self._channel(number, micro, forward):
            return ops.send(tensor, peer, self._label(edge, micro, forward), self.place.over)

    def _take(self, number: int, edge: Edge, micro: int, forward: bool) -> tf.Tensor:
        taken = ops.take(self._posted.pop((number, micro, forward)))
        taken.set_shape(self._graph.spec(edge.value).shape)
        return taken

    def _channel(self, edge: int, micro: int, forward: bool) -> AbstractContextManager[None]:
        micros = self.plan.schedule.micro_batches
        turn = micro % _IN_FLIGHT if self._in_turns[edge, forward] else micro
        return ops.channels(channels.EDGES.only((edge * 2 + forward) * micros + turn))

    def _come_in_order(self, edge: Edge, forward: bool) -> bool:
        """Whether both ends of an edge go through the micro-batches in the same order."""
        schedule, kinds = self.plan.schedule, "F" if forward else "BI"
        maker, user = (
            [
                action.micro
                for action in schedule.actions[schedule.rank_of[stage]]
                if action.stage == stage and action.kind in kinds
            ]
            for stage in (edge.maker, edge.user)
        )
        return maker == user

    def _rank_of(self, stage: int) -> int:
        return self.place.ranks[self.plan.schedule.rank_of[stage]]

    def _label(self, edge: Edge, micro: int, forward: bool) -> str:
        what = "" if forward else "the gradient of "
        return f"{what}{self._graph.specs[edge.value].name} of micro-batch {micro}"


def _sum(a: Any, b: Any) -> Any:
    """Of dense tensors, or of tf.IndexedSlices: then the rows of both."""
    if a is None:
        return b
    if isinstance(a, tf.IndexedSlices) and isinstance(b, tf.IndexedSlices):
        return tf.IndexedSlices(
            tf.concat([a.values, b.values], 0), tf.concat([a.indices, b.indices], 0), b.dense_shape
        )
    return tf.convert_to_tensor(a) + tf.convert_to_tensor(b)
