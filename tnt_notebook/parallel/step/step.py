"""What is known while one step is traced, and what ranks vote for in it."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import keras
import tensorflow as tf

from tnt_notebook.comm import Communicator, World
from tnt_notebook.keras.state import tensor_of
from tnt_notebook.parallel.data import Share
from tnt_notebook.parallel.exchange import Applied, Exchange, ExchangeStep
from tnt_notebook.parallel.exchange.state import ExchangeState
from tnt_notebook.parallel.step.combine import Part

if TYPE_CHECKING:
    from tnt_notebook.parallel.step.weights import Weights

#: The key under which a step returns, beside its logs, [samples of the global batch, the votes,
#: whether all ranks read the same batch], float64; on one rank the samples alone.
NEWS = "__tnt_news__"


@dataclass
class Step:
    """What is known while one step is traced.

    Attributes:
        share: what this rank has of the global batch.
        assigned: variables that the step itself changes, not an optimizer.
        before: their values when the step began, by id of the variable.
        drawn: ids of the states of random generators that it draws from.
        exchanged: variables whose gradients have passed the exchange, and an optimizer.
        graph: what the step is traced into.
        applying, differentiating: whether an optimizer works, or a tape, just now.
        kept, applied: what the exchange remembers, and the optimizers that it stands around, by id.
        alike: ids of variables of whose gradients all ranks have the same rows.
        of_replica: ids of variables whose gradients were added up within, where they were taken.
        as_one: whether it is traced as on one process, and ranks run it together: the gradients of
            ranks are summands then.
        weight: by what gradients count, where that is not the rank's part of the batch.
        batch_norm: whose samples statistics of batch norm are of: ``"rank"`` or ``"whole"``.
        told: for which ops it brings samples together, and how many bytes a sample.
        weights: what this rank has of them; None: all, and it trains alone.
    """

    over: Communicator
    exchange: Exchange
    model: keras.Model
    share: Share
    assigned: list[keras.Variable] = field(default_factory=list)
    before: dict[int, tf.Tensor] = field(default_factory=dict)
    drawn: set[int] = field(default_factory=set)
    exchanged: list[keras.Variable] = field(default_factory=list)
    graph: Any = field(default_factory=tf.compat.v1.get_default_graph)
    applying: bool = False
    differentiating: bool = False
    state: ExchangeState = field(default_factory=lambda: ExchangeState([]))
    applied: dict[int, Applied] = field(default_factory=dict)
    of_replica: set[int] = field(default_factory=set)
    alike: set[int] = field(default_factory=set)
    as_one: bool = False
    weight: float | None = None
    batch_norm: str = "rank"
    told: dict[str, int] = field(default_factory=dict)
    weights: Weights | None = None

    @property
    def scale(self) -> tf.Tensor:
        """By what this rank's gradients count in their sum, float64: its part of the global batch,
        0 without data; or what it is told."""
        if self.weight is not None:
            return tf.constant(self.weight, tf.float64)
        return tf.cast(self.share.local, tf.float64) / tf.cast(self.share.total, tf.float64)

    @property
    def part(self) -> Part:
        """What this rank has of the global batch."""
        return Part(self.over, self.scale, self.has_data)

    @functools.cached_property
    def exchanging(self) -> ExchangeStep:
        """What the exchange is told of it."""
        return ExchangeStep(self.over, self.scale, self.state, owners=self.owners, alike=self.alike)

    @property
    def owners(self) -> Mapping[int, int]:
        """Of variables that one rank trains for all, by id, its place among the replicas."""
        return {} if self.weights is None else self.weights.owners

    @property
    def within(self) -> Weights | None:
        """The weights, where ranks with the same samples divide them or the work."""
        return self.weights if self.weights is not None and self.weights.divided else None

    @property
    def begin(self) -> tf.Tensor:
        """Where this rank's samples begin in the global batch, int32."""
        return tf.cast(self.share.first, tf.int32)

    @property
    def has_data(self) -> tf.Tensor:
        return self.share.local > 0

    def record(self, variable: keras.Variable) -> None:
        """A variable is about to be assigned."""
        if self.applying:
            return
        self.assigned.append(variable)
        if id(variable) not in self.before:
            # Of a condition or loop that is traced just now, nothing would be seen outside.
            eager = tf.executing_eagerly()
            with contextlib.nullcontext() if eager else self.graph.as_default():
                self.before[id(variable)] = tf.identity(tensor_of(variable))


class Votes(NamedTuple):
    """What a rank votes for, each with 0 or 1, or the sums over all: to end the run after this
    step since a person asks for it, to sample where time goes, to make a checkpoint, to leave the
    run with that, for another process to go on; and to end this fit since its loss is NaN.
    """

    stop: Any
    sample: Any
    keep: Any
    leave: Any
    diverged: Any = 0.0


@dataclass(frozen=True)
class Setting:
    """What all steps of a model have in common; the votes of this rank as a vector, float64."""

    over: World
    exchange: Exchange
    votes: tf.Variable
    state: ExchangeState
    applied: dict[int, Applied] = field(default_factory=dict)
    batch_norm: str = "rank"
    told: dict[str, int] = field(default_factory=dict)

    @classmethod
    def of(cls, over: World, exchange: Exchange, model: keras.Model, batch_norm: str) -> Setting:
        """Of a model of which nothing has been trained."""
        with tf.device("/CPU:0"):
            none = tf.zeros(len(Votes._fields), tf.float64)
            votes = tf.Variable(none, trainable=False, name="tnt_votes")
        return cls(over, exchange, votes, ExchangeState(model.variables), batch_norm=batch_norm)

    def step(
        self, model: keras.Model, share: Share, over: Communicator, weights: Weights | None = None
    ) -> Step:
        """One that is about to be traced.

        Args:
            over: the replicas.
        """
        return Step(
            over, self.exchange if weights is None else weights.exchange, model, share,
            state=self.state, applied=self.applied, batch_norm=self.batch_norm, told=self.told,
            weights=weights,
        )  # fmt: skip

    def anew(self) -> Setting:
        """That of a model that has been compiled again."""
        return replace(self, applied={}, told={})
