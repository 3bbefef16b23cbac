"""State that ranks change by themselves for some steps, before it is combined.

::

    begin()    base: what all ranks have
    follow()   a step: each rank's own part of the batch is added to what it has
    ...
    take()     all ranks have what one process would: of base, and what each rank has made of it
"""

from __future__ import annotations

from collections.abc import Sequence

import keras
import tensorflow as tf

from tnt_notebook.comm import Communicator
from tnt_notebook.keras.state import tensor_of
from tnt_notebook.keras.tensorflow import made_while_tracing
from tnt_notebook.parallel.data import Share
from tnt_notebook.parallel.step.combine import Change, Part, combine_changes


class LocalAccumulator:
    """The variables of one model that steps of one kind change.

    Attributes:
        seen: since ranks have last had the same, sums of the samples of this rank, of those of all,
            and of the fingerprints of the batches; int64.
    """

    def __init__(self, over: Communicator) -> None:
        self._over = over
        self._bases: dict[int, tf.Variable] = {}
        self._changes: dict[int, Change] = {}
        with tf.device("/CPU:0"):
            self.seen = tf.Variable(tf.zeros(3, tf.int64), trainable=False, name="tnt_seen")

    @property
    def has_steps(self) -> bool:
        """Whether there were any since ranks have last had the same."""
        return bool(self.seen[1] > 0)

    @property
    def variables(self) -> list[keras.Variable]:
        return [change.variable for change in self._changes.values()]

    @property
    def changes(self) -> list[Change]:
        """What this rank has done since ranks have last had the same."""
        return [c._replace(before=self._before(c.variable)) for c in self._changes.values()]

    def _before(self, variable: keras.Variable) -> tf.Tensor:
        base = self._bases.get(id(variable))
        return tf.zeros_like(tensor_of(variable)) if base is None else base.read_value()

    @property
    def part(self) -> Part:
        """That of this rank since then."""
        own, all_, _ = tf.unstack(tf.cast(self.seen, tf.float64))
        return Part(self._over, own / tf.maximum(all_, 1.0), own > 0)

    def keep(self, variables: Sequence[keras.Variable]) -> None:
        """A step is traced that changes these, of which each rank has a summand."""
        for variable in variables:
            self._changes[id(variable)] = Change(variable, None, "sum", always_adds=True)

    def follow(self, changes: Sequence[Change], share: Share) -> None:
        """A step is traced that has done this. Without data a rank has done nothing."""
        for change in changes:
            variable = tensor_of(change.variable)
            if id(change.variable) not in self._bases:
                name = f"tnt_base_{change.variable.name}"
                self._bases[id(change.variable)] = made_while_tracing(variable, name=name)
            self._changes[id(change.variable)] = change._replace(before=None)
            if change.rule != "same":
                variable.assign(tf.where(share.local > 0, variable, change.before))

    def count(self, share: Share) -> None:
        """A step is traced."""
        counted = share.local, share.total, share.fingerprint
        self.seen.assign_add(tf.stack([tf.cast(number, tf.int64) for number in counted]))

    def begin(self) -> None:
        """All ranks have the same."""
        for key, base in self._bases.items():
            base.assign(tensor_of(self._changes[key].variable))
        self.seen.assign(tf.zeros_like(self.seen))

    def take(self) -> None:
        """Gives all ranks the same. Collective."""
        combine_changes(self.part, self.changes)
        self.begin()
