"""``late``: gradients are applied some steps after the one that they are of, so that their exchange
has the whole of another step to hide behind.

One step late, on each rank::

    step 1   forward, backward: g1
    step 2   forward, backward: g2      beside it the sum of all ranks' g1     -> it is applied
    step 3   forward, backward: g3      beside it the sum of all ranks' g2     -> it is applied
    end of the epoch                              the sum of all ranks' g3     -> it is applied
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import keras
import tensorflow as tf

from tnt_notebook.parallel.exchange import (
    Applied,
    Apply,
    Exchange,
    ExchangeStep,
    Gradients,
    Variables,
)
from tnt_notebook.parallel.exchange.allreduce import Allreduce
from tnt_notebook.parallel.exchange.gradient_parts import (
    Parts,
    assign,
    joined,
    kept,
    kept_before,
    parts_of,
    read,
)
from tnt_notebook.parallel.exchange.sparse_rows import are_distinct, summed_by_row
from tnt_notebook.parallel.exchange.state import SHARE
from tnt_notebook.parallel.exchange.timed import tell_when_ready


@dataclass(frozen=True)
class Late(Exchange):
    """Applies the mean of all ranks' gradients some steps late. At the end of each epoch the delay
    is made up for: what waits is applied, in order.

    Attributes:
        steps: how late, 1 or more. One hides the exchange as well as more do.
        warmup: steps without delay at the begin of training, when weights change fast.
        wire, bucket_mb: as of ``allreduce``.
    """

    gives_up: ClassVar[str] = "equality with one process: gradients are of weights some steps old"
    source: ClassVar[str] = "Li et al., Pipe-SGD, NeurIPS 2018"
    settles: ClassVar[bool] = True
    late_logs: ClassVar[bool] = True
    on_one_rank: ClassVar[bool] = True

    steps: int = 1
    warmup: int = 0
    wire: str | None = None
    bucket_mb: float | None = None

    def __post_init__(self) -> None:
        if self.steps < 1 or self.warmup < 0:
            raise ValueError("late takes steps of at least 1, and a warmup of at least 0")
        self._allreduce()

    def gradients(
        self, step: ExchangeStep, gradients: Sequence[Any], variables: Sequence[keras.Variable]
    ) -> list[Any]:
        own = [*map(parts_of, gradients)]
        tell_when_ready(step.over, own)
        step.traced.update({
            id(v): isinstance(g, tf.IndexedSlices) and are_distinct(g)
            for g, v in zip(gradients, variables, strict=True)
        })  # fmt: skip
        # What waits is there when the step begins, so its exchange waits for nothing.
        waiting = [
            kept(step, "waiting", v, p, "weighted") for p, v in zip(own, variables, strict=True)
        ]
        then, then_share = [*map(read, waiting)], self._share_before(step)
        if not self.warmup:
            is_delayed, chosen, chosen_share = tf.constant(True), then, then_share
        else:
            is_delayed = step.number >= self.warmup
            chosen, chosen_share = tf.cond(
                is_delayed, lambda: (then, then_share), lambda: (own, step.scale)
            )
        means = self._means(step, chosen, chosen_share, variables)
        for variable, parts in zip(waiting, own, strict=True):
            assign(variable, parts)
        due = means
        if self.steps > 1:
            queued = [self._queued(step, p, v) for p, v in zip(means, variables, strict=True)]
            due = tf.cond(is_delayed, lambda: queued, lambda: means)
        since = tf.maximum(_settled(step), self.warmup)
        ready = tf.logical_or(tf.logical_not(is_delayed), step.number - since >= self.steps)
        step.notes.update(dict.fromkeys(map(id, variables), ready))
        return [joined(parts, v) for parts, v in zip(due, variables, strict=True)]

    def apply(
        self, step: ExchangeStep, apply: Apply, gradients: Gradients, variables: Variables
    ) -> None:
        def applied() -> tf.Tensor:
            apply(gradients, variables)
            return tf.constant(True)

        ready = next(step.notes[id(v)] for v in variables if id(v) in step.notes)
        tf.cond(ready, applied, lambda: tf.constant(False))

    def settle(self, step: ExchangeStep, applied: Sequence[Applied]) -> None:
        settled = _settled(step)
        waiting = min(int(step.number) - max(int(settled), self.warmup), self.steps)
        settled.assign(step.number)
        if waiting < 1:
            return
        share = step.keep(SHARE, like=step.scale)
        for apply, variables, _ in applied:
            for place in range(self.steps - waiting, self.steps - 1):
                queued = [read(kept_before(step, f"mean {place}", v)) for v in variables]
                apply([joined(p, v) for p, v in zip(queued, variables, strict=True)], variables)
            means: list[Any] = [None] * len(variables)
            for here, places in step.groups(variables):
                some = [variables[i] for i in places]
                last = [read(kept_before(step, "waiting", v)) for v in some]
                found = self._means(here, last, share.read_value(), some)
                for i, parts in zip(places, found, strict=True):
                    means[i] = joined(parts, variables[i])
            apply(means, variables)

    def refuses(self, optimizer: keras.optimizers.Optimizer) -> str:
        if isinstance(optimizer, keras.optimizers.LossScaleOptimizer):
            return (
                "a LossScaleOptimizer changes the scale of the loss while gradients wait: compute "
                "in mixed_bfloat16, which needs none, or exchange without delay"
            )
        return ""

    def _allreduce(self) -> Allreduce:
        return Allreduce(self.wire, self.bucket_mb)

    def _share_before(self, step: ExchangeStep) -> tf.Tensor:
        """The rank's share of the batch in the step before; keeps that of this one."""
        if SHARE not in step.notes:
            share = step.keep(SHARE, like=step.scale)
            step.notes[SHARE] = share.read_value()
            share.assign(step.scale)
        return step.notes[SHARE]

    def _means(
        self,
        step: ExchangeStep,
        gradients: Sequence[Parts],
        share: tf.Tensor,
        variables: Sequence[keras.Variable],
    ) -> list[Parts]:
        """Of all ranks."""
        given = [joined(parts, v) for parts, v in zip(gradients, variables, strict=True)]
        of_share = dataclasses.replace(step, scale=share)
        means = self._allreduce().gradients(of_share, given, variables)
        for i, variable in enumerate(variables):
            if step.traced[id(variable)]:
                means[i] = summed_by_row(means[i])
        return [*map(parts_of, means)]

    def _queued(self, step: ExchangeStep, mean: Parts, variable: keras.Variable) -> Parts:
        """The mean that has waited long enough; puts the latest one behind those that have not."""
        queue = [kept(step, f"mean {place}", variable, mean) for place in range(self.steps - 1)]
        then = [*map(read, queue)]
        for variables, parts in zip(queue, [*then[1:], mean], strict=True):
            assign(variables, parts)
        return then[0]


def _settled(step: ExchangeStep) -> tf.Variable:
    """How many steps there were when all that waited had been applied."""
    return step.keep("settled", like=tf.TensorSpec([], tf.int64))
