"""A call of a layer that a pipeline's stage makes of a micro-batch, as one process makes it of all.

It is traced once, and gone through as a step is that ranks run together
(:mod:`tnt_notebook.parallel.graph.step`): micro-batches are the ranks. What it gives of a sample
may be made of that sample alone; what it adds to the loss, draws by chance and assigns is a part of
that of the batch::

    rows of a micro-batch -> layer -> its rows of the next value
                                   -> its part of a loss
    state before the step -> layer -> its part of the state after it: their sum, or the largest
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

import keras
import tensorflow as tf

from tnt_notebook.errors import ModelError
from tnt_notebook.keras.losses import (
    as_summand,
    forget_losses,
    logits_of,
    own_losses,
    set_logits,
    statistics_replaced,
)
from tnt_notebook.keras.state import draws, may_mix_samples, tensor_of
from tnt_notebook.parallel.graph.counts import ONE
from tnt_notebook.parallel.graph.layouts import PART, SAME, Layout, Rows, meets
from tnt_notebook.parallel.graph.marks import of_own_samples
from tnt_notebook.parallel.graph.step import Followed, ancestors, followed, rows_of, written
from tnt_notebook.parallel.layer_graph.graph import SAMPLES, Call, Graph, layers_of
from tnt_notebook.parallel.pipeline.assignments import (
    assigned_in,
    assigns,
    extreme_of,
    is_kept_extreme,
    read_again,
)
from tnt_notebook.parallel.pipeline.ending import MicroBatchHere
from tnt_notebook.parallel.step.combine import RULES, known_rules, told_rule
from tnt_notebook.parallel.step.interpose import recorded_assignments


class PartCalls:
    """The calls of a stage that have to be gone through, in the graph of the stage.

    Args:
        elsewhere: ids of state that calls of other stages may change.

    Attributes:
        rules: by which the state combines that they assign: see :class:`PartCall`.
        losses: their parts of losses of the batch.
    """

    def __init__(
        self,
        model: keras.Model,
        graph: Graph,
        training: bool,
        micro: MicroBatchHere,
        elsewhere: Collection[int],
    ) -> None:
        self._model, self._graph, self._training = model, graph, training
        self._micro, self._elsewhere = micro, elsewhere
        self.rules: dict[int, str] = {}
        self.losses: list[tf.Tensor] = []

    def run(self, call: Call, values: dict[int, Any]) -> bool:
        """Makes a call; False: its layer itself has to, on the micro-batch as if it were all."""
        is_one_of_several = self._micro.parts > 1 or not state_of([call]).isdisjoint(
            self._elsewhere
        )
        if not is_one_of_several or not self._is_followed(call):
            return False
        one = PartCall(self._model, self._graph, call, self._training, values)
        if any(self.rules.get(key) == "part" for key in one.rules):
            raise ModelError(
                f"The layer {call.name!r} is called more than once in a stage, and each call "
                "changes its state by what it sees of samples: in a pipeline one may. Make several "
                "layers of it."
            )
        self.rules |= one.rules
        if not one.is_native:
            self.losses += one.run(values, self._micro)
        return not one.is_native

    def repeat(self, calls: Iterable[Call], variables: Sequence[keras.Variable]) -> None:
        """Makes of variables what calls of other stages make of them, where that is the same for
        all samples."""
        for call in filter(self._is_followed, calls):
            one = PartCall(self._model, self._graph, call, self._training, {})
            one.repeat(self._micro, [v for v in variables if one.rules.get(id(v)) == "same"])

    def draw(self, draw: Callable[[tf.Tensor], tf.Tensor], whole: tf.Tensor) -> tf.Tensor:
        """What a function makes of rows of a micro-batch and of random numbers, for those of a
        batch."""
        with recorded_assignments(lambda seeds: self.rules.update({id(seeds): "same"})):
            spec = tf.TensorSpec([None, *whole.shape[1:]], whole.dtype)
            traced = tf.function(draw, autograph=False).get_concrete_function(spec)
        step = followed(traced, [Rows(0)], returned=Rows(0))
        values = {step.inputs[0].name: whole}
        ((made,), _) = written(step, values, self._micro.here, self._micro)
        return tf.ensure_shape(made, [None, *whole.shape[1:]])

    def _is_followed(self, call: Call) -> bool:
        """Whether it may look at several samples, or draws by chance."""
        mixes = may_mix_samples(call.operation) or (self._training and draws(call.operation))
        return mixes and self._graph.dense.issuperset(_taken(call))


def state_of(calls: Sequence[Call]) -> set[int]:
    """The ids of what layers have beside weights that are trained."""
    return {id(v) for layer in layers_of(calls) for v in layer.variables if not v.trainable}


class PartCall:
    """One call of a stage.

    Args:
        values: of the graph of the model, as they are where the stage is traced; those of other
            stages may lack.

    Attributes:
        rules: by which the state combines that it assigns, by id of the variable: one of those of
            ``parallel/step/combine.py``, or "part": the sum of what micro-batches make.
        is_native: whether the layer itself is called, since somebody has said how its state
            combines.
    """

    def __init__(
        self,
        model: keras.Model,
        graph: Graph,
        call: Call,
        training: bool,
        values: Mapping[int, Any],
    ) -> None:
        self._call, self._taken, self._graph = call, _taken(call), graph
        self._has_logits: list[int] = []
        recorded: list[keras.Variable] = []

        def run(*tensors: tf.Tensor) -> Any:
            own = dict(zip(self._taken, tensors, strict=True))
            with statistics_replaced(of_own_samples), recorded_assignments(recorded.append):
                call.run(own, training)
            losses = []
            if isinstance(call.operation, keras.Layer):
                losses = [as_summand(model, loss) for loss in own_losses(call.operation)]
                forget_losses(call.operation)
            given = [own[n] for n in call.gives]
            beside = {i: logits_of(x) for i, x in enumerate(given) if logits_of(x) is not None}
            self._has_logits = list(beside)
            return [*given, *beside.values()], losses

        specs = [_spec_of(graph, n, values.get(n)) for n in self._taken]
        traced = tf.function(run, autograph=False).get_concrete_function(*specs)
        self._given = len(call.gives) + len(self._has_logits)
        assigned = {id(v): v for v in recorded if not v.trainable}
        at_once = assigned_in(traced, assigned.values())
        known = {k: r for k, r in known_rules(model).items() if k in assigned and k not in at_once}
        told = known | {key: rule for key, v in assigned.items() if (rule := told_rule(v))}
        self.is_native = bool(told)
        later = {key: v for key, v in at_once.items() if key not in told}
        self._step = self._followed(traced, later.values())
        self.rules = told | self._found(later)
        parts = [v for key, v in later.items() if self.rules[key] == "part"]
        if len(parts) < len(later):
            self._step = self._followed(traced, parts)
        self._check(assigned)

    def _followed(self, traced: Any, later: Iterable[keras.Variable]) -> Followed:
        layouts: list[Layout] = [Rows(0)] * len(self._taken)
        several = {i for i, n in enumerate(self._taken) if self._has_several(n)}
        variables = [*map(tensor_of, later)]
        step = followed(traced, layouts, several=several, later=variables)
        gives = [*self._call.gives, *(self._call.gives[i] for i in self._has_logits)]
        returned: list[tuple[tf.Tensor, Layout]] = []
        for i, (tensor, _) in enumerate(step.returned):
            has = step.facts.layout(tensor)
            want: Layout = PART if i >= self._given else Rows(0)
            if i < self._given and self._has_several(gives[i]) and isinstance(has, Rows):
                want = has if has.dim == 0 and has.outer == ONE else want
            returned.append((tensor, want))
        return step._replace(returned=returned)

    def _has_several(self, value: int) -> bool:
        """Whether a value has several rows for each sample, or one for several steps of each."""
        return self._graph.shapes[value][0] != SAMPLES

    def _found(self, assigned: Mapping[int, keras.Variable]) -> dict[int, str]:
        """The rules of variables of which nobody has said how they combine."""
        rules = {}
        for key, variable in assigned.items():
            values = [
                (each.op, each.has[1])
                for each in self._step.decisions
                if each.op.type == "AssignVariableOp" and assigns(self._step, each.op, variable)
            ]
            kinds = {extreme_of(op) for op, _ in values}
            if len(kinds) == 1 and (kind := kinds.pop()):
                rules[key] = kind
            else:
                rules[key] = "same" if all(has == SAME for _, has in values) else "part"
        return rules

    def _check(self, assigned: Mapping[int, keras.Variable]) -> None:
        """Raises ModelError where micro-batches would make something else of it than the batch."""
        step, of_state = self._step, set(self.rules.values()) - {"same", "part"}
        met = [
            each.op
            for each in step.decisions
            if any(map(meets, each.has, each.decision.wants))
            or (each.decision.meets and not (of_state and is_kept_extreme(each.op)))
        ]
        met += [
            tensor.op
            for tensor, want in step.returned
            if meets(has := step.facts.layout(tensor), want)
            or (isinstance(want, Rows) and has != want)
        ]
        met += read_again(step)
        shown = ancestors(tensor.op for tensor, _ in step.returned)
        mixing = next((op for op in met if op.name in shown), None)
        if mixing is not None:
            raise ModelError(
                f"The layer {self._call.name!r} looks at several samples of a batch "
                f"({mixing.type}, as far as its graph tells): in a pipeline it is called on "
                "micro-batches, and would not train as in one process. Write it for each sample "
                "alone, give the operation a rule (tnt.graph.rule), or train without a pipeline."
            )
        untold = [v for key, v in assigned.items() if self.rules[key] == "part"]
        if (met and not self.is_native) or (self.is_native and untold):
            path = (untold or [*assigned.values()])[0].path
            raise ModelError(
                f"The layer {self._call.name!r} assigns {path}, and what it makes of it is not "
                "made of what each micro-batch makes of it. Say before training how it combines: "
                f"tnt.combine(variable, rule), with one of {', '.join(map(repr, RULES))}."
            )
        if self.is_native and len(step.returned) > self._given:
            raise ModelError(
                f"The layer {self._call.name!r} adds to the loss, and has state that combines by "
                "tnt.combine: in a pipeline it may do one of both. Make two layers of it."
            )

    def repeat(self, micro: MicroBatchHere, variables: Iterable[keras.Variable]) -> None:
        """Makes of variables what the call makes of them, which is the same for all samples; in the
        graph of a stage that does not make the call."""
        changes = [
            each.op
            for each in self._step.decisions
            if each.op.type == "AssignVariableOp"
            and any(assigns(self._step, each.op, variable) for variable in variables)
        ]
        needed = ancestors(changes)
        decisions = [each for each in self._step.decisions if each.op.name in needed]
        written(self._step._replace(decisions=decisions, returned=[]), {}, micro.here, micro)

    def run(self, values: dict[int, Any], micro: MicroBatchHere) -> list[tf.Tensor]:
        """Makes the call, in the graph of a stage; gives its parts of losses of the batch."""
        tensors = [values[n] for n in self._taken]
        named = {own.name: each for own, each in zip(self._step.inputs, tensors, strict=True)}
        for own, number, tensor in zip(self._step.inputs, self._taken, tensors, strict=True):
            if self._has_several(number):
                each = tf.shape(tensor, out_type=tf.int64)[0] // micro.here.computed
                named[rows_of(own)] = tf.zeros([each])
        found, _ = written(self._step, named, micro.here, micro)
        count = len(self._call.gives)
        given, beside = found[:count], found[count : self._given]
        for i, logits in zip(self._has_logits, beside, strict=True):
            set_logits(given[i], logits)
        values.update(zip(self._call.gives, given, strict=True))
        return found[self._given :]


def _taken(call: Call) -> list[int]:
    """The values that a call takes, with their masks."""
    return list(dict.fromkeys([*call.takes, *call.masks, *call.masks.values()]))


def _spec_of(graph: Graph, number: int, value: tf.Tensor | None) -> tf.TensorSpec:
    spec = graph.spec(number)
    if value is None:
        return spec
    shape = value.shape.merge_with(spec.shape)
    return tf.TensorSpec([None, *shape[1:]], value.dtype)
