"""What ranks do with gradients and weights, and when: the extension point.

An exchange is a strategy. It stands around the user's own optimizer::

    forward, backward -> gradients(...) -> apply(...) -> the next step
                                                 ... -> settle(...)   at the end of an epoch

It is a subclass of :class:`Exchange` that says what it does otherwise than the base class, which
does nothing: with that each rank would train a model of its own. Its options are the fields of a
dataclass. What it has to remember from step to step it keeps in variables of a rank, which
checkpoints save::

    from dataclasses import dataclass
    from tnt_notebook.comm import ops
    from tnt_notebook.parallel.exchange import Exchange

    @dataclass(frozen=True)
    class Smoothed(Exchange):
        beta: float = 0.5

        def gradients(self, step, gradients, variables):
            means = ops.allreduce(gradients, step.scale, over=step.over)
            smooth = [step.keep("smooth", of=v, like=g) for g, v in zip(gradients, variables)]
            return [s.assign(self.beta * s + g) for s, g in zip(smooth, means)]

    tnt.Model(model, exchange=Smoothed(beta=0.9))         # in a script
    %%tnt_fit --exchange Smoothed:beta=0.9                # of a cell of %%tnt

Where there is nothing to remember, a function does::

    def exchange(gradients, variables, scale, over): ...

that gets this rank's gradients (``tf.Tensor`` or ``tf.IndexedSlices``, one for each variable), the
``keras.Variable`` they belong to, a scalar tensor ``scale`` (this rank's share of the global batch:
the shares of all ranks add up to 1, and it is 0 where a rank has no data) and the
:class:`~tnt_notebook.comm.Communicator`, and returns gradients of the same structure: the sum over
ranks of ``scale * gradient``, or what it wants the optimizer to see instead.

All of these are called while the training step is traced, and build graph; ``settle`` runs at once.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import tensorflow as tf

from tnt_notebook.parallel.exchange.state import ExchangeState

if TYPE_CHECKING:
    import keras
    import numpy as np

    from tnt_notebook.comm import Communicator

#: A ``tf.Tensor`` or ``tf.IndexedSlices`` for each variable, in their order.
Gradients = Sequence[Any]
#: Those that gradients belong to.
Variables = Sequence["keras.Variable"]

#: A function of gradients, variables, scale and ranks, as described above; it returns gradients.
ExchangeFunction = Callable[[Gradients, Variables, "tf.Tensor", "Communicator"], list[Any]]


@dataclass(frozen=True)
class Apply:
    """The ``apply`` of an optimizer: called with gradients and the variables they belong to."""

    optimizer: keras.optimizers.Optimizer
    own: Callable[..., Any]

    def __call__(self, gradients: Gradients, variables: Variables) -> None:
        self.own(self.optimizer, gradients, variables)


__all__ = [
    "Applied", "Apply", "Exchange", "ExchangeFunction", "ExchangeStep", "Gradients", "Variables",
]  # fmt: skip


class Applied(NamedTuple):
    """An optimizer that an exchange stands around.

    Attributes:
        apply: its own ``apply``.
        variables: whose gradients it gets.
        state: what it keeps.
    """

    apply: Apply
    variables: Sequence[keras.Variable]
    state: Sequence[keras.Variable]


@dataclass(frozen=True)
class ExchangeStep:
    """What an exchange is told of the step that is traced.

    Attributes:
        over: the ranks that exchange: all, or, in a pipeline and on a mesh, those that train the
            same weights.
        scale: this rank's share of the global batch, a float64 scalar: those of all ranks add up to
            1, and it is 0 where a rank has no data.
        notes: what an exchange notes for its later calls in the same step.
        alike: by id, variables whose gradients are slices of the same rows on all ranks, in the
            same order: of positions, and of no sample.
        owners: of the variables that one rank trains for all, by id, its rank in ``over``; see
            :attr:`Exchange.has_owners`.
        by_group: while it settles in a pipeline, gives the steps of all groups of ranks that train
            the same weights, each with the places of its variables; see :meth:`groups`.
    """

    over: Communicator
    scale: tf.Tensor
    state: ExchangeState
    notes: dict[Any, Any] = field(default_factory=dict)
    owners: Mapping[int, int] = field(default_factory=dict)
    alike: Collection[int] = ()
    by_group: Callable[[Sequence[Any]], Iterable[tuple[ExchangeStep, list[int]]]] | None = None

    def groups(
        self, variables: Sequence[keras.Variable]
    ) -> Iterable[tuple[ExchangeStep, list[int]]]:
        """For :meth:`Exchange.settle`: the same for each group of ranks that train the same
        weights, with the places of its variables among these. One after the other."""
        if self.by_group is None:
            return [(self, list(range(len(variables))))]
        return self.by_group(variables)

    @property
    def number(self) -> tf.Tensor:
        """How many steps there were before, an int64 scalar; the same on all ranks. Checkpoints
        save it."""
        return self.state.number

    @property
    def traced(self) -> dict[Any, Any]:
        """What an exchange has to know in Python, afterwards, of the step that was traced."""
        return self.state.traced

    def keep(
        self,
        name: str,
        of: keras.Variable | None = None,
        like: tf.Tensor | tf.TensorSpec | None = None,
        rule: str = "same",
        initial: Callable[[], np.ndarray] | None = None,
    ) -> tf.Variable:
        """A variable of this rank that lasts from step to step.

        Args:
            name: what it is, in a word: one of a name, for each `of`.
            of: the variable of the model that it belongs to; None: to all of them.
            like: has its shape and dtype; by default `of`. A tensor whose shape is not known in
                full has that of `of`; a ``tf.TensorSpec`` without a first dimension makes a
                variable that begins with no rows, and may have any number of them.
            rule: what becomes of it when training goes on, from a checkpoint, on another number of
                ranks: ``"same"``: all have the same value; ``"sum"``: what counts is the sum over
                ranks; ``"weighted"``: it is the sum, each multiplied by what the rank has kept as
                ``"share"``.
            initial: makes what it begins with; by default zeros.
        """
        if like is None:
            if of is None:
                raise ValueError("keep takes its shape and dtype from of, or from like")
            like = of.value
        elif of is not None and tf.is_tensor(like) and not like.shape.is_fully_defined():
            like = tf.TensorSpec(of.shape, like.dtype)
        return self.state.variable(name, of, like, rule, initial)


@dataclass(frozen=True)
class Exchange:
    """What ranks do with gradients and weights; this one does nothing.

    Attributes:
        gives_up: the promise that it gives up, in words for a person; empty if it keeps all.
        source: where it is described.
        settles: whether it has something to do at the end of an epoch.
        on_one_rank: whether it is called on one rank, too, where there is nobody to exchange with.
        keeps_ranks_equal: whether weights are the same on all replicas after every step; else they
            are where it says that ranks meet, and after it has settled, and it cannot be taken in
            stages.
        late_logs: whether metrics and votes, to stop for instance, may be some steps late: ranks
            then exchange them a few times a second, and not in every step.
        has_owners: whether one rank trains a variable for all, and it alone keeps what optimizers
            do of it, until the model is gathered at the end of training.
    """

    gives_up: ClassVar[str] = ""
    source: ClassVar[str] = ""
    settles: ClassVar[bool] = False
    on_one_rank: ClassVar[bool] = False
    keeps_ranks_equal: ClassVar[bool] = True
    late_logs: ClassVar[bool] = False
    has_owners: ClassVar[bool] = False

    @property
    def ahead(self) -> int:
        """By how many steps a rank may be ahead of another. Where ranks exchange metrics the first
        waits for the last, so with :attr:`late_logs` they do it more rarely then."""
        return 0

    def gradients(
        self, step: ExchangeStep, gradients: Gradients, variables: Variables
    ) -> list[Any]:
        """What the optimizer is to see, of this rank's gradients. Where a model has several
        optimizers it is called for the variables of each."""
        return list(gradients)

    def apply(
        self, step: ExchangeStep, apply: Apply, gradients: Gradients, variables: Variables
    ) -> None:
        """Lets the optimizer apply what :meth:`gradients` gave; some may be None."""
        apply(gradients, variables)

    def meets(self, step: ExchangeStep) -> bool | tf.Tensor:
        """Whether the weights of all ranks are the same after this step, a scalar where that
        depends on its number. What layers keep themselves, such as statistics, is combined then."""
        return self.keeps_ranks_equal

    def settle(self, step: ExchangeStep, applied: Sequence[Applied]) -> None:
        """Does what is left, at the end of an epoch and before its validation: afterwards the
        weights are the same on all ranks, and no gradient waits. Runs at once.

        Args:
            applied: the optimizers.
        """

    def seen(self, step: ExchangeStep) -> str:
        """What it has found out on this rank while training, in words for the view; empty if there
        is nothing to say. Runs at once, on rank 0."""
        return ""

    def owners(self, optimizers: Sequence[Sequence[keras.Variable]], size: int) -> dict[int, int]:
        """Where it :attr:`has_owners`, the rank that trains a variable, by its id; none of what all
        ranks train.

        Args:
            optimizers: the variables that each trains.
            size: how many ranks there are.
        """
        return {}

    def refuses(self, optimizer: keras.optimizers.Optimizer) -> str:
        """Why it cannot work with an optimizer, and what to do; empty if it can."""
        return ""
