"""Logs and votes of training steps that ranks exchange a few times a second, not in every step.

Each step counts on its own rank, in a :class:`~.local_accumulator.LocalAccumulator`. Where ranks
meet they learn the logs of all batches so far, exactly as one process would have them, and each
goes on counting on its own; at the end of an epoch the metrics of all are those of one process.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import keras
import tensorflow as tf

from tnt_notebook.comm import Communicator, World, channels, ops
from tnt_notebook.keras.state import tensor_of
from tnt_notebook.parallel.data import Share
from tnt_notebook.parallel.step.combine import Change
from tnt_notebook.parallel.step.local_accumulator import LocalAccumulator
from tnt_notebook.parallel.step.logs import (
    check_same_data,
    marks_of,
    of_part,
    results,
    same_data,
    summed,
)
from tnt_notebook.parallel.step.step import NEWS, Step, Votes
from tnt_notebook.parallel.step.sync_interval import SyncInterval

_NO_VOTES = Votes(0, 0, 0, 0)


class LateLogs:
    """Of the training steps of one model.

    Args:
        over: the replicas, of which each counts.
        ahead: steps by which a rank may be ahead of another.
        in_parts: whether ranks run steps together, so that each keeps a part of what metrics count.

    Attributes:
        in_every_step: whether ranks meet after each step.
        logs: of all ranks, when they have last met.
        is_behind: whether its metrics are those of this rank only.
    """

    def __init__(
        self, world: World, over: Communicator, model: keras.Model, ahead: int, in_parts: bool
    ) -> None:
        self._world, self._over, self._model = world, over, model
        self._accumulator, self._interval = LocalAccumulator(over), SyncInterval(world, ahead)
        self._in_parts = in_parts
        self.in_every_step = True
        self.logs: dict[str, Any] = {}
        self._own: dict[str, Any] = {}  # what this rank adds to logs, of its latest step
        self.is_behind, self._begins = False, True
        self._names: list[str] = []
        self._others: list[str] = []  # of them, those that are no results of metrics
        self._changed: set[int] = set()
        self._always = False
        self._exchange = tf.function(self._exchanged, autograph=False)

    # A step is traced -----------------------------------------------------------------------------

    def of_step(
        self, step: Step, logs: dict[str, Any], changes: Sequence[Change]
    ) -> dict[str, Any]:
        """What a step returns that each rank makes by itself: what this rank adds to logs that are
        no results of metrics, and as its news the samples of the global batch."""
        self._accumulator.follow(changes, step.share)
        # A mean of means is not that of all samples, unless ranks meet after each.
        self._always |= any(change.rule == "mean" for change in changes)
        others = self.others(logs, {id(v) for v in step.assigned})
        self._accumulator.count(step.share)
        own = {name: of_part(value, step.scale) for name, value in others.items()}
        return {**own, NEWS: step.share.total}

    def others(self, logs: dict[str, Any], changed: set[int]) -> dict[str, Any]:
        """Of the logs of a step that is traced those that are no results of metrics.

        Args:
            changed: ids of the variables that the step has changed.
        """
        self._names, self._changed = list(logs), changed
        own = results(self._model, logs, changed)
        others = {name: tf.convert_to_tensor(v) for name, v in logs.items() if name not in own}
        self._others = list(others)
        return others

    def of_parts(
        self, share: Share, others: dict[str, Any], variables: Sequence[keras.Variable]
    ) -> dict[str, Any]:
        """The same of a step that ranks run together.

        Args:
            others: what this rank adds to logs that are no results of metrics.
            variables: of which each rank keeps a part.
        """
        self._accumulator.keep(variables)
        self._accumulator.count(share)
        return {**others, NEWS: share.total}

    # Training -------------------------------------------------------------------------------------

    def begin(self) -> None:
        """An epoch begins, in which ranks meet after the first step."""
        self._interval.begin()
        self._begins, self.is_behind = True, False

    def step_begins(self) -> None:
        """Before each step: where ranks have met, metrics may have been reset since."""
        if self._begins or self.in_every_step or not self.is_behind:
            self._begins = False
            self._accumulator.begin()
            if self._in_parts and self._over.rank > 0 and not self._model.run_eagerly:
                # The first rank has all of what metrics have counted, others add to it.
                for variable in self._model.metrics_variables:
                    variable.assign(tf.zeros_like(tensor_of(variable)))

    def take(self, returned: dict[str, Any]) -> int:
        """Takes what a step has returned; gives the samples of the batch."""
        self._own = dict(returned)
        self.is_behind = True
        return int(self._own.pop(NEWS))

    def step_ended(
        self, step_ns: int, wants: Callable[[], Votes], due_in: Callable[[], float]
    ) -> Votes:
        """After a step: lets ranks meet if it is time. Gives the votes of all, or none.

        Args:
            step_ns: how long it took.
            wants: gives what this rank votes for.
            due_in: gives in how many steps ranks have to meet again at the latest.
        """
        always = self.in_every_step or self._always
        if not (self._interval.is_due() or always):
            return _NO_VOTES
        return self._meet(wants(), self._interval.wanted(step_ns, due_in()), keep=always)

    def caught_up(self) -> dict[str, Any]:
        """Gives the metrics of all ranks the state that one process would have, and the logs that
        follow. Collective."""
        self._meet(_NO_VOTES, 0, keep=True)
        return self.logs

    def _meet(self, own: Votes, apart: int, keep: bool) -> Votes:
        """Brings the logs up to date, and metrics if they are to keep what they then have."""
        numbers = tf.constant([*own, apart], tf.float64)
        others = {name: self._own[name] for name in self._others}
        logs, sums, same = self._exchange(numbers, others, keep)
        check_same_data(same)
        self.logs = {name: logs[name] for name in self._names}
        self.is_behind = not keep
        *votes, apart = sums.numpy().tolist()
        self._interval.agreed(int(apart))
        return Votes(*votes)

    def _exchanged(self, numbers: tf.Tensor, others: dict[str, Any], keep: bool) -> Any:
        own = self._accumulator
        counted = [tf.identity(tensor_of(variable)) for variable in own.variables]
        with ops.channels(channels.TRAINING):
            head = [*marks_of(own.seen[2]), *tf.unstack(numbers)]
            votes = None if self._over is self._world else self._world
            (mark, square, *sums), others = summed(own.part, head, own.changes, others, votes)
        logs = {**results(self._model, self._names, self._changed), **others}
        same = same_data([mark, square], self._world.size)
        if keep:
            own.begin()
        else:
            for variable, value in zip(own.variables, counted, strict=True):
                tensor_of(variable).assign(value)
        return logs, tf.stack(sums), same
