"""What the last stage of a pipeline makes of a model's outputs: a loss, and what metrics count.

It is traced once, as one process computes it of a batch. Micro-batches, those of all replicas, are
to it what ranks are to a step that they run together (:mod:`tnt_notebook.parallel.graph.step`)::

    labels and weights of the batch -> [ sums ] -> what is known before the first micro-batch
    outputs of a micro-batch, its labels, what is known -> its part of the loss and of counts

What cannot be known before all outputs are there is refused.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

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
from tnt_notebook.parallel.graph.step import Followed, Together, followed, written

#: Ops that look at no more of a value than its shape.
_OF_SHAPES = ("OnesLike", "Rank", "Shape", "ShapeN", "Size", "ZerosLike")


@dataclass(frozen=True)
class MicroBatchHere:
    """Which samples of a batch a micro-batch has.

    Attributes:
        here: of all replicas' samples.
        number: of the micro-batch among those of all replicas; int64, scalar.
        parts: how many these are.
    """

    here: Here
    number: tf.Tensor
    parts: int

    def first(self, value: tf.Tensor) -> tf.Tensor:
        return tf.where(self.number == 0, value, tf.zeros_like(value))

    def sums(self, values: list[tf.Tensor]) -> list[tf.Tensor]:
        assert not values or self.parts == 1  # others are known, or refused
        return values

    def extreme(self, value: tf.Tensor, which: str) -> tf.Tensor:
        assert self.parts == 1
        return value

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

        def run(made: Sequence[tf.Tensor], flat: Sequence[tf.Tensor]) -> Any:
            tensors, rest = iter(made), iter(flat)
            again = [next(tensors) for _ in beside]
            for leaf, (has_mask, has_logits) in zip(again, beside, strict=True):
                if has_mask:
                    set_mask(leaf, next(tensors))
                if has_logits:
                    set_logits(leaf, next(tensors))
            whole = keras.tree.map_structure(lambda x: None if x is None else next(rest), labels)
            return compute(keras.tree.pack_sequence_as(outputs, again), *whole)

        made = [*map(_spec_of, _with_beside(leaves))]
        for i, shape in enumerate(shapes):
            made[i] = tf.TensorSpec(made[i].shape.merge_with(shape), made[i].dtype)
        self._specs = made, [*map(_spec_of, given)]
        traced = tf.function(run, autograph=False).get_concrete_function(*self._specs)
        every = (*self._specs[0], *self._specs[1])
        layouts = [Rows(0) if spec.shape.rank else SAME for spec in every]
        held = [*map(tensor_of, kept)]
        self._step: Followed = followed(traced, layouts, held, PART)
        depending = self._depending()
        met = conversions(self._step.decisions, self._step.returned, self._step.facts)
        self.known = [t for t in met if t.name not in depending and t.shape.is_fully_defined()]
        names = {t.name for t in self.known}
        late = [t.op for t in met if t.name not in names]
        late += [each.op for each in self._step.decisions if each.decision.meets]
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
            labels: of this replica.
            over: the replicas.
        """
        if not self.known:
            return []
        given = _flat(labels)
        rows = tf.shape(given[0]) if given else tf.reshape(tf.cast(here.rows, tf.int32), [1])
        values = [*(_zeros(spec, rows) for spec in self._specs[0]), *given]
        step = self._step._replace(
            decisions=self._needed_for_known(), returned=[(t, SAME) for t in self.known]
        )
        found, _ = written(step, self._named(values), here, Together(over))
        return [tf.reshape(tf.cast(value, tf.float64), [-1]) for value in found]

    def _needed_for_known(self) -> list[Any]:
        needed, left = set[str](), [tensor.op for tensor in self.known]
        while left:
            op = left.pop()
            if op.name not in needed:
                needed.add(op.name)
                left += [tensor.op for tensor in op.inputs]
        return [each for each in self._step.decisions if each.op.name in needed]

    def of_part(
        self, outputs: Any, labels: Sequence[Any], micro: MicroBatchHere, known: tf.Tensor
    ) -> list[tf.Tensor]:
        """Its part of what is computed, in the graph of a stage.

        Args:
            outputs, labels: of a micro-batch, which has borrowed a sample if it has none.
            known: see :meth:`known_of`, one vector after another.
        """
        rows = micro.here.rows
        values = [
            tensor[:rows] if tensor.shape.rank else tensor
            for tensor in (*_with_beside(keras.tree.flatten(outputs)), *_flat(labels))
        ]
        sizes = [math.prod(tensor.shape) for tensor in self.known]
        begins = [0, *itertools.accumulate(sizes)]
        whole = {
            own.name: tf.cast(tf.reshape(known[begin : begin + size], own.shape), own.dtype)
            for own, begin, size in zip(self.known, begins, sizes, strict=False)
        }
        found, _ = written(self._step, self._named(values), micro.here, micro, known=whole)
        return found

    @property
    def elements(self) -> int:
        """How long the vectors are that are known, together."""
        return sum(math.prod(tensor.shape) for tensor in self.known)

    def _named(self, values: Sequence[tf.Tensor]) -> dict[str, tf.Tensor]:
        return {own.name: value for own, value in zip(self._step.inputs, values, strict=True)}


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


def check_known(ending: Ending, what: str, parts: int) -> None:
    """Raises ModelError where something is known only after the last micro-batch."""
    if ending.unknown and parts > 1:
        raise ModelError(
            f"{what} looks at several samples of a batch ({ending.unknown}, as far as its graph "
            f"tells), and this pipeline computes it of {parts} parts of a batch, each alone. Train "
            "without a pipeline, or with one micro-batch and one replica."
        )


def _with_beside(leaves: Sequence[tf.Tensor]) -> list[tf.Tensor]:
    """Tensors, and what Keras keeps beside them: a mask, and of a softmax what it was made of."""
    beside = [each for leaf in leaves for each in (mask_of(leaf), logits_of(leaf))]
    return [*leaves, *(each for each in beside if each is not None)]


def _flat(labels: Sequence[Any]) -> list[tf.Tensor]:
    return [leaf for leaf in keras.tree.flatten(list(labels)) if leaf is not None]


def _spec_of(tensor: Any) -> tf.TensorSpec:
    shape = tensor.shape if not tensor.shape.rank else [None, *tensor.shape[1:]]
    return tf.TensorSpec(shape, tensor.dtype)


def _zeros(spec: tf.TensorSpec, like: tf.Tensor) -> tf.Tensor:
    """Where sizes are not known, as large as the labels."""
    sizes = [like[axis] if n is None else n for axis, n in enumerate(spec.shape)]
    return tf.zeros(sizes, spec.dtype)


def _nothing(variable: tf.Variable) -> np.ndarray:
    return np.zeros(variable.shape, variable.dtype.as_numpy_dtype)
