"""The loss and the metrics of one kind of step of a pipeline: of micro-batches as far as they can
be, of all outputs where they look at several samples."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import keras
import tensorflow as tf

from tnt_notebook.keras.losses import as_summand, compiled_loss, compiled_metrics
from tnt_notebook.parallel.pipeline.ending import (
    All,
    Counted,
    Ending,
    MicroBatchHere,
    with_beside,
)
from tnt_notebook.parallel.pipeline.runtime import PipelineStep


@dataclass(frozen=True)
class Endings:
    """What the last stage makes of outputs, in one kind of step.

    Attributes:
        loss, metrics: those that compile() was given; None: it was given none.
        counted: the states of the metrics.
        parts: how many micro-batches all replicas have.
    """

    loss: Ending | None
    metrics: Ending | None
    counted: Counted
    parts: int

    @property
    def loss_is_of_all(self) -> bool:
        """Whether there is no loss before all outputs are there."""
        return self._is_of_all(self.loss)

    @property
    def metrics_are_of_all(self) -> bool:
        return self._is_of_all(self.metrics)

    def _is_of_all(self, ending: Ending | None) -> bool:
        return ending is not None and bool(ending.unknown) and self.parts > 1

    def known(self, labels: Sequence[Any], all_: All) -> tf.Tensor:
        """What has to be known of a batch before the first micro-batch; in the graph of a step.

        Args:
            labels: of this replica.
        """
        found = [
            ending.known_of(labels, all_.here, all_.over)
            for ending in (self.loss, self.metrics)
            if ending is not None and not self._is_of_all(ending)
        ]
        return tf.concat([tf.zeros([0], tf.float64), *itertools.chain(*found)], 0)

    def of_part(
        self, outputs: Any, labels: Sequence[Any], micro: MicroBatchHere, known: tf.Tensor
    ) -> tuple[list[tf.Tensor], list[tf.Tensor]]:
        """In the graph of a stage: the part of the loss that a micro-batch has, where there is one;
        and what is to be kept of its outputs. The metrics count it."""
        parts: list[tf.Tensor] = []
        if self.loss is not None and not self.loss_is_of_all:
            parts = self.loss.of_part(outputs, labels, micro, known)
            known = known[self.loss.elements :]
        if self.metrics is not None and not self.metrics_are_of_all:
            self.metrics.of_part(outputs, labels, micro, known)
            self.counted.keep()
        kept: list[tf.Tensor] = []
        if self.loss_is_of_all or self.metrics_are_of_all:
            kept = with_beside(keras.tree.flatten(outputs))
        return parts, kept if self.loss_is_of_all else [tf.stop_gradient(each) for each in kept]

    def loss_of_all(
        self, step: PipelineStep, labels: Sequence[Any], scale: tf.Tensor, all_: All
    ) -> tuple[tf.Tensor, list[list[tf.Tensor]]]:
        """In the graph of a step, when all micro-batches of this replica have gone forward: its
        part of the loss, and of each micro-batch the gradients of what is kept of its outputs."""
        assert self.loss is not None
        made = _computed(step)
        loss, gradients = self.loss.gradients_of_all(made, labels, scale, all_)
        own, begin = list[list[tf.Tensor]](), tf.constant(0, tf.int64)
        for number, micro in enumerate(step.micro_batches):
            rows = micro.labels[0]
            borrowed = [tf.zeros_like(kept)[rows:] for kept in step.results[number]]
            own.append([
                tf.concat([gradient[begin : begin + rows], rest], 0)
                if gradient.dtype == rest.dtype
                else rest
                for gradient, rest in zip(gradients, borrowed, strict=True)
            ])  # fmt: skip
            begin += rows
        return loss, own

    def finish(self, step: PipelineStep, labels: Sequence[Any], all_: All, trains: bool) -> None:
        """In the graph of a step, after the last micro-batch.

        Args:
            trains: whether the loss is known already.
        """
        of_metrics, of_loss = self.metrics_are_of_all, self.loss_is_of_all and not trains
        made = _computed(step) if of_metrics or of_loss else []
        if self.metrics is not None and of_metrics:
            self.metrics.of_all(made, labels, all_)
            self.counted.keep()
        if self.loss is not None and of_loss:
            (loss,) = self.loss.of_all(made, labels, all_)
            step.loss += tf.cast(loss, step.loss.dtype)


def endings_of(
    model: keras.Model,
    outputs: Any,
    shapes: Sequence[tf.TensorShape],
    labels: Sequence[Any],
    parts: int,
) -> Endings:
    """Traces the loss and the metrics of a model.

    Args:
        outputs, shapes, labels: see :class:`.Ending`.
        parts: how many micro-batches all replicas have.
    """
    loss, metrics = compiled_loss(model), compiled_metrics(model)
    lost, counts = None, None
    if loss is not None:

        def computed(outputs: Any, y: Any, sample_weight: Any) -> Any:
            return as_summand(model, loss(y, outputs, sample_weight))

        lost = Ending(computed, outputs, shapes, labels)
    if metrics is not None:

        def counted(outputs: Any, y: Any, sample_weight: Any) -> None:
            metrics.update_state(y, outputs, sample_weight)

        counts = Ending(counted, outputs, shapes, labels, metrics.variables)
    return Endings(lost, counts, Counted(() if metrics is None else metrics.variables), parts)


def joined(step: PipelineStep) -> list[tf.Tensor]:
    """What the last stage has kept of all micro-batches, without borrowed samples."""
    return _joined(step, [micro.labels[0] for micro in step.micro_batches])


def _computed(step: PipelineStep) -> list[tf.Tensor]:
    """The same; of a replica without samples that of the borrowed one."""
    first, *others = (micro.labels[0] for micro in step.micro_batches)
    has_none = first + sum(others) == 0
    return _joined(step, [first + tf.cast(has_none, first.dtype), *others])


def _joined(step: PipelineStep, rows: Sequence[tf.Tensor]) -> list[tf.Tensor]:
    each = [[t[:count] for t in step.results[number]] for number, count in enumerate(rows)]
    return [tf.concat(column, 0) for column in zip(*each, strict=True)]
