"""Logs and votes of training steps that ranks exchange a few times a second, not in every step.

Each step counts on its own rank, in a :class:`~tnt_notebook.parallel.pool.Pool`. Where ranks meet
they learn the logs of all batches so far, exactly as one process would have them, and each goes on
counting on its own; at the end of an epoch the metrics of all are those of one process.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import keras
import tensorflow as tf

from tnt_notebook.comm import World, channels, ops
from tnt_notebook.keras.state import tensor_of
from tnt_notebook.parallel.combine import Change
from tnt_notebook.parallel.logs import check_same_data, marks_of, results, same_data, summed
from tnt_notebook.parallel.meetings import Meetings
from tnt_notebook.parallel.pool import Pool
from tnt_notebook.parallel.step import NEWS, Step, Votes

_NO_VOTES = Votes(0, 0, 0, 0)


class LateLogs:
    """Of the training steps of one model.

    Args:
        ahead: steps by which a rank may be ahead of another.

    Attributes:
        in_every_step: whether ranks meet after each step.
        logs: of all ranks, when they have last met.
        is_behind: whether its metrics are those of this rank only.
    """

    def __init__(self, over: World, model: keras.Model, ahead: int) -> None:
        self._over, self._model = over, model
        self._pool, self._meetings = Pool(over), Meetings(over, ahead)
        self.in_every_step = True
        self.logs: dict[str, Any] = {}
        self._own: dict[str, Any] = {}  # logs of this rank, of its latest step
        self._scale = 0.0  # its share of the batch then
        self.is_behind, self._begins = False, True
        self.forget()

    # A step is traced -----------------------------------------------------------------------------

    def forget(self) -> None:
        """The steps are traced anew, for other metrics perhaps."""
        self._pool.forget()
        self._names: list[str] = []
        self._others: list[str] = []  # of them, those that are no results of metrics
        self._changed: set[int] = set()
        self._always = False
        self._exchange = tf.function(self._exchanged, autograph=False)

    def of_step(
        self, step: Step, logs: dict[str, Any], changes: Sequence[Change]
    ) -> dict[str, Any]:
        """What the step returns: the logs of this rank, and as its news the samples of the global
        batch and the share of this rank, float64."""
        self._pool.follow(changes, step.share)
        # A mean of means is not that of all samples, unless ranks meet after each.
        self._always |= any(change.rule == "mean" for change in changes)
        self._names, self._changed = list(logs), {id(v) for v in step.assigned}
        own = results(self._model, logs, self._changed)
        others = {name: tf.cast(v, tf.float32) for name, v in logs.items() if name not in own}
        self._others = list(others)
        news = tf.stack([tf.cast(step.share.total, tf.float64), step.scale])
        return {**{name: {**own, **others}[name] for name in logs}, NEWS: news}

    # Training -------------------------------------------------------------------------------------

    def begin(self) -> None:
        """An epoch begins, in which ranks meet after the first step."""
        self._meetings.begin()
        self._begins, self.is_behind = True, False

    def step_begins(self) -> None:
        """Before each step: where ranks have met, metrics may have been reset since."""
        if self._begins or self.in_every_step or not self.is_behind:
            self._begins = False
            self._pool.begin()

    def take(self, returned: dict[str, Any]) -> int:
        """Takes what a step has returned; gives the samples of the batch."""
        self._own = dict(returned)
        samples, self._scale = self._own.pop(NEWS).numpy()
        self.is_behind = True
        return int(samples)

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
        if not (self._meetings.is_due() or always):
            return _NO_VOTES
        return self._meet(wants(), self._meetings.wanted(step_ns, due_in()), keep=always)

    def caught_up(self) -> dict[str, Any]:
        """Gives the metrics of all ranks the state that one process would have, and the logs that
        follow. Collective."""
        self._meet(_NO_VOTES, 0, keep=True)
        return self.logs

    def _meet(self, own: Votes, apart: int, keep: bool) -> Votes:
        """Brings the logs up to date, and metrics if they are to keep what they then have."""
        numbers = tf.constant([*own, apart, self._scale], tf.float64)
        others = {name: self._own[name] for name in self._others}
        logs, sums, same = self._exchange(numbers, others, keep)
        check_same_data(same)
        self.logs = {name: logs[name] for name in self._names}
        self.is_behind = not keep
        *votes, apart = sums.numpy().tolist()
        self._meetings.agreed(int(apart))
        return Votes(*votes)

    def _exchanged(self, numbers: tf.Tensor, others: dict[str, Any], keep: bool) -> Any:
        *votes, scale = tf.unstack(numbers)
        pool = self._pool
        counted = [tf.identity(tensor_of(variable)) for variable in pool.variables]
        with ops.channels(channels.TRAINING):
            head = [*marks_of(pool.seen[2]), *votes]
            (mark, square, *sums), means = summed(pool.part, head, pool.changes, others, scale)
        logs = {**results(self._model, self._names, self._changed), **means}
        same = same_data([mark, square], self._over.size)
        if keep:
            pool.begin()
        else:
            for variable, value in zip(pool.variables, counted, strict=True):
                tensor_of(variable).assign(value)
        return logs, tf.stack(sums), same
