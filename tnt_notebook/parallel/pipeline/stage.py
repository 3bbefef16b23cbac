"""What a stage computes for one micro-batch: its layers, its share of the loss, the metrics.

Every stage has a loss: what its own layers add to it (activity and weight regularization,
``add_loss``); the last one adds the compiled loss, from the model's outputs. The gradient of a
stage's loss begins on that stage, with the micro-batch's weight in the batch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import keras
import tensorflow as tf

from tnt_notebook.comm import ops
from tnt_notebook.errors import ModelError
from tnt_notebook.keras.graph import set_mask
from tnt_notebook.keras.losses import as_summand, own_losses, weight_losses
from tnt_notebook.keras.state import tensor_of
from tnt_notebook.parallel.graph.emission import Here
from tnt_notebook.parallel.layer_graph.graph import Call, Graph, layers_of, trained_values
from tnt_notebook.parallel.layer_graph.packing import unpacked
from tnt_notebook.parallel.layer_graph.parts import parts_of
from tnt_notebook.parallel.layers.program import Program
from tnt_notebook.parallel.layers.ranks import MeshRanks
from tnt_notebook.parallel.layers.rule import Draw
from tnt_notebook.parallel.pipeline.ending import MicroBatchHere
from tnt_notebook.parallel.pipeline.part_call import PartCalls, state_of
from tnt_notebook.parallel.pipeline.state import StageState
from tnt_notebook.parallel.step.combine import known_rules
from tnt_notebook.parallel.step.interpose import drawn_apart, recorded_assignments
from tnt_notebook.plan.partition import Partition, Stage

#: What the last stage does with the model's outputs: gives parts of the loss of a batch, and
#: tensors as they are.
Finish = Callable[[Any, list[tf.Tensor]], tuple[list[tf.Tensor], list[tf.Tensor]]]


class Division(NamedTuple):
    """How layers are divided, and the ranks that do so: those of a replica at the same stage."""

    program: Program
    ranks: MeshRanks

    def run(
        self,
        values: dict[int, Any],
        training: bool,
        calls: range,
        wanted: Sequence[int],
        run: Callable[[Call, dict[int, Any]], None],
        called: Callable[[Call], None],
        draw: Draw,
    ) -> dict[int, Any]:
        """Makes calls of a stage on blocks; gives what is wanted, whole, beside the values."""
        found = self.program.run_part(
            values, self.ranks, training, calls, wanted, called=called, run=run, draw=draw
        )
        return values | found


@dataclass(frozen=True)
class StageModel:
    """The part of a model that one stage runs.

    Attributes:
        is_last: it has the model's outputs, the compiled loss and the metrics.
        values: what it is called on: values of earlier stages, then inputs of the model.
        regularized: layers whose weights add to the loss here; a shared layer's only once.
        trained: values of the whole model that gradients flow through.
        elsewhere: calls of stages before and after it that have state in common with its own.
        division: how its layers are divided over a mesh; None: they are not.
    """

    model: keras.Model
    graph: Graph
    stage: Stage
    number: int
    is_last: bool
    regularized: tuple[keras.Layer, ...]
    trained: frozenset[int]
    elsewhere: tuple[Sequence[Call], Sequence[Call]] = (), ()
    division: Division | None = None

    @property
    def calls(self) -> list[Call]:
        return self.graph.calls[self.stage.begin : self.stage.end]

    @property
    def values(self) -> tuple[int, ...]:
        return self.stage.takes + self.stage.inputs

    @property
    def layers(self) -> list[keras.Layer]:
        return layers_of(self.calls)

    def trainable_variables(self) -> list[keras.Variable]:
        """Of its layers, each once, in the order of the model."""
        own = {id(v) for layer in self.layers for v in layer.trainable_variables}
        return [v for v in self.model.trainable_variables if id(v) in own]

    def variables(self) -> list[keras.Variable]:
        """All of its layers', each once."""
        return list({id(v): v for layer in self.layers for v in layer.variables}.values())

    def forward(
        self,
        tensors: Sequence[Any],
        training: bool,
        run: Callable[[Call, dict[int, Any]], None],
        draw: Draw,
    ) -> tuple[dict[int, Any], list[Any]]:
        """Runs the layers: gives all values, by number, and what the layers add to the loss.

        Args:
            run: makes a call that is not divided.
            draw: of what is divided, see :class:`~.layers.rule.Local`.
        """
        values = {
            value: unpacked(tensor, self.graph.spec(value))
            for value, tensor in zip(self.values, tensors, strict=True)
        }
        losses: list[Any] = []

        def called(call: Call) -> None:
            if isinstance(call.operation, keras.Layer):
                losses.extend(own_losses(call.operation))

        if self.division is None:
            for call in self.calls:
                run(call, values)
                called(call)
        else:
            wanted = [*self.stage.gives, *(self.graph.outputs if self.is_last else ())]
            calls = range(self.stage.begin, self.stage.end)
            values = self.division.run(values, training, calls, wanted, run, called, draw)
        for layer in self.regularized:
            losses += weight_losses(layer)
        return values, [as_summand(self.model, loss) for loss in losses]

    def outputs(self, values: dict[int, Any]) -> Any:
        """What the model returns, on the last stage."""
        for value, mask in self.graph.masked.items():
            if value in self.graph.outputs and mask in values:
                set_mask(values[value], values[mask])
        return keras.tree.map_structure(lambda n: values[n], self.graph.output_structure)


def stage_models(
    model: keras.Model, graph: Graph, cut: Partition, division: Division | None = None
) -> list[StageModel]:
    """The stages of a model. Raises ModelError where a cut goes through something that cannot be
    sent."""
    for edge in cut.edges:
        spec = graph.specs[edge.value]
        if edge.value not in graph.dense:
            raise ModelError(
                f"Stage {edge.user} takes {spec.name!r} from another stage, which is not a dense "
                "tensor and cannot be sent. Cut elsewhere."
            )
        if tf.as_dtype(spec.dtype) not in ops.MOVED_DTYPES:
            raise ModelError(
                f"Stage {edge.user} takes {spec.name!r} from another stage, whose dtype is "
                f"{spec.dtype}, and only numbers and bool can be sent. Cut elsewhere."
            )
    trained = trained_values(graph)
    regularized: set[int] = set()
    stages = []
    for number, stage in enumerate(cut.stages):
        layers = layers_of(graph.calls[stage.begin : stage.end])
        own = tuple(layer for layer in layers if id(layer) not in regularized)
        regularized.update(id(layer) for layer in own)
        is_last = number == len(cut.stages) - 1
        has = state_of(graph.calls[stage.begin : stage.end])
        before, after = (
            [call for call in calls if has & state_of([call])]
            for calls in (graph.calls[: stage.begin], graph.calls[stage.end :])
        )
        stages.append(
            StageModel(
                model, graph, stage, number, is_last, own, trained, (before, after), division
            )
        )
    return stages


class StageFunctions:
    """The traced parts of a stage, and what their arguments and results are called.

    Args:
        labels: specs of what ``finish`` takes beside the model's outputs. The first are the number
            of samples that count, with 0 of which the stage's state stays as it was, that of the
            batch, and where in it they begin; int64.
        kinds: of the parts: ``"FB"`` or ``"FIW"`` in training, else ``"F"``.
        number_of_parts: how many micro-batches all replicas have.
        replica: which of them this one is.

    Attributes:
        taken, given, labels: names of values and labels; ``d`` before them is their gradient's.
        loss: name of the loss, if the stage adds to it.
        results: names of what ``finish`` gives as it is.
        state: what layers change themselves, over the micro-batches of a step.
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
        number_of_parts: int = 1,
        replica: int = 0,
    ) -> None:
        self.model = model
        self.number, self.training = model.number, training
        self.variables = model.trainable_variables()
        n = len(model.values)
        own, drawn = {id(v) for v in model.variables()}, set[int]()
        elsewhere = state_of([*model.elsewhere[0], *model.elsewhere[1]])
        self.state = StageState()
        loss: list[tf.Tensor] = []
        results: list[tf.Tensor] = []

        def forward(tensors: list[tf.Tensor]) -> list[tf.Tensor]:
            nonlocal loss, results
            before: dict[int, tuple[keras.Variable, tf.Tensor]] = {}
            graph = tf.compat.v1.get_default_graph()

            def record(variable: keras.Variable) -> None:
                if id(variable) not in before and not (variable.trainable and id(variable) in own):
                    with graph.as_default():  # a condition or loop may be traced just now
                        before[id(variable)] = variable, tf.identity(tensor_of(variable))

            here = Here.of(tensors[n + 2], tensors[n], tensors[n + 1])
            micro = MicroBatchHere(here, number_of_parts)
            calls = PartCalls(model.model, model.graph, training, micro, elsewhere)

            def run(call: Call, values: dict[int, Any]) -> None:
                if not calls.run(call, values):
                    with drawn_apart(replica, drawn):
                        call.run(values, training)

            with recorded_assignments(record):
                calls.repeat(model.elsewhere[0], model.variables())
                values, losses = model.forward(tensors[:n], training, run, calls.draw)
                calls.repeat(model.elsewhere[1], model.variables())
            given = [values[v] for v in model.stage.gives]
            ended: list[tf.Tensor] = []
            if model.is_last:
                ended, results = finish(model.outputs(values), tensors[n:])
            if not predicts:
                share = tf.cast(tensors[n], tf.float64) / tf.cast(tensors[n + 1], tf.float64)
                losses = [own * tf.cast(share, own.dtype) for own in losses]
                losses += [*calls.losses, *ended]
                loss = [tf.add_n(losses)] if losses else []
            for variable, value in before.values():
                rule = calls.rules.get(id(variable))
                if id(variable) in elsewhere and rule != "same":
                    raise ModelError(
                        f"Layers change {variable.path} in several stages, by what they see of "
                        "samples, and would not make of it what one process does. Cut where all "
                        "calls of the layer are in one stage (cut_at), or make several layers."
                    )
                if (id(variable) in own or rule) and id(variable) not in drawn:
                    rule = rule or _known_rule(model.model, variable)
                    self.state.keep(variable, rule, value, tensors[n], tensors[n + 1])
                else:  # seeds; a micro-batch without samples works on a borrowed one
                    held = tensor_of(variable)
                    held.assign(tf.where(tensors[n] > 0, held.read_value(), value))
            self.state.count()
            return [*given, *loss, *results]

        self.parts = parts_of(
            forward,
            [*map(model.graph.packed_spec, model.values), *labels],
            [v.value for v in self.variables],
            kinds,
            recompute,
            f"stage_{model.number}",
            differentiated=[i for i, v in enumerate(model.values) if v in model.trained],
        )
        self.taken = {value: f"x{i}" for i, value in enumerate(model.values)}
        self.given = {value: f"y{i}" for i, value in enumerate(model.stage.gives)}
        self.labels = [f"x{n + i}" for i in range(len(labels))]
        after = [f"y{len(self.given) + i}" for i in range(len(loss) + len(results))]
        self.loss = after[0] if loss else None
        self.results = after[len(loss) :]


def _known_rule(model: keras.Model, variable: keras.Variable) -> str:
    rule = known_rules(model).get(id(variable))
    if rule is None:
        raise ModelError(
            f"A layer assigns {variable.path}, and no rule says how to combine it over micro-"
            "batches. Give one before training: tnt.combine(variable, rule)."
        )
    return rule
