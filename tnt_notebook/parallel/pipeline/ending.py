"""What the last stage of a pipeline makes of a model's outputs: a loss, and what metrics count.

It is traced once, as one process computes it of a batch. Micro-batches, those of all replicas, are
to it what ranks are to a step that they run together (:mod:`tnt_notebook.parallel.graph.step`)::

    labels and weights of the batch -> [ sums ] -> what is known before the first micro-batch
    outputs of a micro-batch, its labels, what is known -> its part of the loss and of counts

What can be known only of all outputs is computed of all of them, after the last micro-batch has
gone forward: metrics under any schedule, a loss under those that go back only then.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import keras
import numpy as np
import tensorflow as tf

from tnt_notebook.comm import Communicator
from tnt_notebook.errors import ModelError
from tnt_notebook.keras.graph import mask_of, set_mask
from tnt_notebook.keras.losses import logits_of, set_logits
from tnt_notebook.keras.state import tensor_of
from tnt_notebook.keras.tensorflow import made_while_tracing
from tnt_notebook.parallel.graph.emission import Here, conversions
from tnt_notebook.parallel.graph.layouts import PART, SAME, Rows
from tnt_notebook.parallel.graph.step import (
    Followed,
    Together,
    ancestors,
    followed,
    gathered,
    written,
)
from tnt_notebook.parallel.step.together import spec_of
from tnt_notebook.plan.schedule import Action

#: Ops that look at no more of a value than its shape.
_OF_SHAPES = ("OnesLike", "Rank", "Shape", "ShapeN", "Size", "ZerosLike")


@dataclass(frozen=True)
class MicroBatchHere:
    """Which samples of a batch a micro-batch has.

    Attributes:
        here: of all replicas' samples.
        parts: how many micro-batches all replicas have.
    """

    here: Here
    parts: int

    def first(self, value: tf.Tensor) -> tf.Tensor:
        has_first = (self.here.first == 0) & self.here.has_samples
        return tf.where(has_first, value, tf.zeros_like(value))

    def sums(self, values: list[tf.Tensor]) -> list[tf.Tensor]:
        assert not values or self.parts == 1  # others are known, or refused
        return values

    def extreme(self, value: tf.Tensor, which: str) -> tf.Tensor:
        return value  # for state that keeps it; others are known, or refused

    def gathered(self, value: tf.Tensor) -> tf.Tensor:
        assert self.parts == 1
        return value


class Ending:
    """A loss, or metrics, of a batch that comes in parts.

    Args:
        compute: of outputs, labels and sample weights, as the model's compile() has it.
        outputs: those of a micro-batch, in the structure in which the model returns them.
        shapes: of the same, as far as they are known, for any number of samples.
        labels: labels and sample weights of one; None where there are none.
        kept: variables that it changes.

    Attributes:
        known: what has to be known before the first micro-batch.
        unknown: the op that needs what is known only after the last one; empty: there is none.
    """

    def __init__(
        self,
        compute: Callable[..., Any],
        outputs: Any,
        shapes: Sequence[tf.TensorShape],
        labels: Sequence[Any],
        kept: Sequence[keras.Variable] = (),
    ) -> None:
        leaves, given = keras.tree.flatten(outputs), _flat(labels)
        beside = [(mask_of(leaf) is not None, logits_of(leaf) is not None) for leaf in leaves]

        def run(made: Sequence[Any], flat: Sequence[tf.Tensor]) -> Any:
            tensors, rest = iter(made), iter(flat)
            again = [next(tensors) for _ in beside]
            for leaf, (has_mask, has_logits) in zip(again, beside, strict=True):
                if has_mask:
                    set_mask(leaf, next(tensors))
                if has_logits:
                    set_logits(leaf, next(tensors))
            whole = keras.tree.map_structure(lambda x: None if x is None else next(rest), labels)
            return compute(keras.tree.pack_sequence_as(outputs, again), *whole)

        made = [*map(spec_of, with_beside(leaves))]
        for i, shape in enumerate(shapes):
            made[i] = tf.TensorSpec(made[i].shape.merge_with(shape), made[i].dtype)
        self._specs = made, [*map(spec_of, given)]
        traced = tf.function(run, autograph=False).get_concrete_function(*self._specs)
        every = (*self._specs[0], *self._specs[1])
        self._run = run
        self._layouts = [Rows(0) if spec.shape.rank else SAME for spec in every]
        held = [*map(tensor_of, kept)]
        # A loss waits for no sum if it need not.
        self._step: Followed = followed(traced, self._layouts, held, PART, divides_parts=not kept)
        depending = self._depending()
        step = self._step

        def is_known(tensor: tf.Tensor) -> bool:
            return tensor.name not in depending and tensor.shape.is_fully_defined()

        met = conversions(step.decisions, step.returned, step.facts)
        late = [tensor.op for tensor in met if not is_known(tensor)]
        self.known = [tensor for tensor in met if is_known(tensor)]
        #: Ops that are made of all samples, with what they give.
        self._made_before: dict[str, list[tf.Tensor]] = {}
        for each in step.decisions:
            given = list(each.op.outputs)
            if each.decision.meets and all(
                is_known(own) and gives == SAME
                for own, gives in zip(given, each.decision.gives, strict=True)
            ):
                self._made_before[each.op.name] = given
                self.known += given
            elif each.decision.meets:
                late.append(each.op)
        self.unknown = late[0].type if late else ""

    def _depending(self) -> set[str]:
        """The values that depend on outputs, by name."""
        found = {tensor.name for tensor in self._step.inputs[: len(self._specs[0])]}
        for each in self._step.decisions:
            depends = any(tensor.name in found for tensor in each.op.inputs)
            if depends and each.op.type not in _OF_SHAPES:
                found |= {tensor.name for tensor in each.op.outputs}
        return found

    def known_of(self, labels: Sequence[Any], here: Here, over: Communicator) -> list[tf.Tensor]:
        """What is known of a batch, in the graph of a step; vectors of float64.

        Args:
            labels: of this replica, which has borrowed a sample if it has none.
            over: the replicas.
        """
        if not self.known:
            return []
        given = _flat(labels)
        rows = tf.shape(given[0]) if given else tf.reshape(tf.cast(here.computed, tf.int32), [1])
        values = [*(_zeros(spec, rows) for spec in self._specs[0]), *given]
        step = self._step._replace(
            decisions=self._needed_for_known(), returned=[(t, SAME) for t in self.known]
        )
        found, _ = written(step, self._named(values), here, Together(over))
        return [tf.reshape(tf.cast(value, tf.float64), [-1]) for value in found]

    def _needed_for_known(self) -> list[Any]:
        needed = ancestors(tensor.op for tensor in self.known)
        return [each for each in self._step.decisions if each.op.name in needed]

    def of_part(
        self, outputs: Any, labels: Sequence[Any], micro: MicroBatchHere, known: tf.Tensor
    ) -> list[tf.Tensor]:
        """Its part of what is computed, in the graph of a stage.

        Args:
            outputs, labels: of a micro-batch, which has borrowed a sample if it has none.
            known: see :meth:`known_of`, one vector after another.
        """
        made = with_beside(keras.tree.flatten(outputs))
        values = [*made, *_flat(labels)]
        sizes = [math.prod(tensor.shape) for tensor in self.known]
        begins = [0, *itertools.accumulate(sizes)]
        whole = {
            own.name: tf.cast(tf.reshape(known[begin : begin + size], own.shape), own.dtype)
            for own, begin, size in zip(self.known, begins, sizes, strict=False)
        }
        before = {own.name for given in self._made_before.values() for own in given}
        decisions = [e for e in self._step.decisions if e.op.name not in self._made_before]
        named = self._named(values) | {name: whole[name] for name in before}
        step = self._step._replace(decisions=decisions)
        return written(step, named, micro.here, micro, known=whole)[0]

    def of_all(
        self, made: Sequence[tf.Tensor], labels: Sequence[Any], all_: All
    ) -> list[tf.Tensor]:
        """This replica's part of what is computed of all outputs, in the graph of a step.

        Args:
            made: :func:`with_beside` of the outputs of this replica's samples.
            labels: of the same; of a borrowed sample if it has none.
        """
        all_.note(self._step)
        values = self._named([*made, *_flat(labels)])
        return written(self._step, values, all_.here, Together(all_.over))[0]

    def gradients_of_all(
        self, made: Sequence[tf.Tensor], labels: Sequence[Any], scale: tf.Tensor, all_: All
    ) -> tuple[tf.Tensor, list[tf.Tensor]]:
        """The same of a loss: this replica's part of it, and for each of what is made its gradient,
        multiplied by a scale."""

        def run(made: Sequence[Any], flat: Sequence[tf.Tensor], scale: tf.Tensor) -> Any:
            with tf.GradientTape() as tape:
                tape.watch(made)
                loss = self._run(made, flat)
                scaled = loss * tf.cast(scale, loss.dtype)
            return loss, tape.gradient(scaled, made, unconnected_gradients="zero")

        spec = tf.TensorSpec((), scale.dtype)
        traced = tf.function(run, autograph=False).get_concrete_function(*self._specs, spec)
        count = len(self._specs[0])
        step = followed(traced, [*self._layouts, SAME])
        step = step._replace(
            returned=[
                (tensor, PART if i == 0 else self._layouts[i - 1])
                for i, (tensor, _) in enumerate(step.returned)
            ]
        )
        all_.note(step)
        given = [*made, *_flat(labels), scale]
        values = zip(step.inputs, given, strict=True)
        found, _ = written(
            step, {own.name: value for own, value in values}, all_.here, Together(all_.over)
        )
        assert len(found) == 1 + count
        return found[0], found[1:]

    @property
    def elements(self) -> int:
        """How long the vectors are that are known, together."""
        return sum(math.prod(tensor.shape) for tensor in self.known)

    def _named(self, values: Sequence[tf.Tensor]) -> dict[str, tf.Tensor]:
        return {own.name: value for own, value in zip(self._step.inputs, values, strict=True)}


class All(NamedTuple):
    """All samples of a batch.

    Attributes:
        here: which of them are this replica's.
        over: the replicas.
        told: gets, for which ops rows are brought together, and how many bytes a sample.
    """

    here: Here
    over: Communicator
    told: dict[str, int]

    def note(self, step: Followed) -> None:
        if self.over.size > 1:
            self.told.update(gathered(step.decisions))


class Counted:
    """What metrics count in a step: each micro-batch its part, from nothing; the first one of the
    first replica from what there was."""

    def __init__(self, variables: Sequence[keras.Variable]) -> None:
        self._held = [*map(tensor_of, variables)]
        self._sums = [made_while_tracing(_nothing(v), name="tnt_counted") for v in self._held]
        self._before = [made_while_tracing(_nothing(v), name="tnt_before") for v in self._held]

    def begin(self, is_first: bool) -> None:
        """Before the first micro-batch. In the graph of a step."""
        for held, total, before in zip(self._held, self._sums, self._before, strict=True):
            total.assign(tf.zeros_like(total))
            before.assign(held)
            if not is_first:
                held.assign(tf.zeros_like(held))

    def keep(self) -> None:
        """After a micro-batch. In the graph of a stage."""
        for held, total in zip(self._held, self._sums, strict=True):
            total.assign_add(held)
            held.assign(tf.zeros_like(held))

    def end(self, is_first: bool) -> None:
        """After the last one: of other replicas, what they add to what there was."""
        for held, total, before in zip(self._held, self._sums, self._before, strict=True):
            held.assign(total if is_first else total + before)


def check_goes_back_after(ending: Ending, actions: Sequence[Action], last: int, name: str) -> None:
    """Raises ModelError where a loss needs all outputs, and a schedule goes back before.

    Args:
        actions: of the rank of the last stage.
        last: its number.
        name: of the schedule.
    """
    kinds = [action.kind for action in actions if action.stage == last]
    backward = next((i for i, kind in enumerate(kinds) if kind != "F"), len(kinds))
    if ending.unknown and "F" in kinds[backward:]:
        raise ModelError(
            f"The loss looks at several samples of a batch ({ending.unknown}, as far as its graph "
            "tells), so there is none before all micro-batches have gone forward, and the schedule "
            f"{name} goes back before. Take --schedule gpipe, tnt.Pipeline(schedule='gpipe'), or "
            "train without a pipeline."
        )


def with_beside(leaves: Sequence[tf.Tensor]) -> list[tf.Tensor]:
    """Tensors, and what Keras keeps beside them: a mask, and of a softmax what it was made of."""
    beside = [each for leaf in leaves for each in (mask_of(leaf), logits_of(leaf))]
    return [*leaves, *(each for each in beside if each is not None)]


def _flat(labels: Sequence[Any]) -> list[tf.Tensor]:
    return [leaf for leaf in keras.tree.flatten(list(labels)) if leaf is not None]


def _zeros(spec: tf.TensorSpec, like: tf.Tensor) -> tf.Tensor:
    """Where sizes are not known, as large as the labels."""
    sizes = [like[axis] if n is None else n for axis, n in enumerate(spec.shape)]
    return tf.zeros(sizes, spec.dtype)


def _nothing(variable: tf.Variable) -> np.ndarray:
    return np.zeros(variable.shape, variable.dtype.as_numpy_dtype)
