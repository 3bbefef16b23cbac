"""``gossip``: each rank trains by itself, and in every step takes the mean with one other rank.

Partners of 4 ranks, and of 3, of which one has none::

    step 1   0-1  2-3        1-2
    step 2   0-2  1-3        0-1
    step 3   0-1  2-3        0-2
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import keras
import tensorflow as tf

from tnt_notebook.comm import Communicator, ops
from tnt_notebook.parallel.exchange import Apply, ExchangeStep, Gradients, Variables
from tnt_notebook.parallel.exchange.allreduce import sums
from tnt_notebook.parallel.exchange.local_updates import (
    LocalUpdates,
    assign_all,
    channels_of_its_own,
    flat,
    parted,
    trained,
    values,
)
from tnt_notebook.parallel.exchange.timed import tell_waiting, tell_when_ready

#: How partners are chosen.
PARTNERS = ("rotating", "random")


@dataclass(frozen=True)
class Gossip(LocalUpdates):
    """The optimizer of each rank applies the rank's own gradients; beside each step it sends its
    weights to a partner, and goes half of the way to those that the partner had. No rank waits for
    more than one other. At the end of an epoch all take the mean of their weights.

    Attributes:
        partner: ``"rotating"``: the ranks take turns, so that what one has learnt is with all
            others after as few steps as the logarithm of their number, if that is a power of two;
            ``"random"``: drawn for each step, the same on all ranks.
    """

    source: ClassVar[str] = "Lian et al., D-PSGD, NeurIPS 2017; Assran et al., SGP, ICML 2019"

    partner: str = "rotating"

    def __post_init__(self) -> None:
        if self.partner not in PARTNERS:
            raise ValueError(f"partner is one of {', '.join(PARTNERS)}, not {self.partner!r}")

    def apply(
        self, step: ExchangeStep, apply: Apply, gradients: Gradients, variables: Variables
    ) -> None:
        own = trained(gradients, variables)
        # They are those of the step before, so they travel while this one computes.
        then = values(own)
        theirs = self._of_partner(step, then)
        tell_when_ready(step.over, [g for g in gradients if g is not None])
        apply(gradients, variables)
        tell_waiting(step.over, values(own), theirs)
        for variable, mine, other in zip(own, then, theirs, strict=True):
            variable.assign_add((other - mine) / 2)

    def come_together(self, step: ExchangeStep, variables: Sequence[keras.Variable]) -> None:
        part = 1 / step.over.size
        assign_all(variables, sums(step, values(variables), variables, part, "mean of weights"))

    def _of_partner(self, step: ExchangeStep, weights: Sequence[tf.Tensor]) -> list[tf.Tensor]:
        """The weights of the partner in this step; the own ones where there is none."""
        count = rounds(step.over.size)
        number = step.number
        if self.partner == "random":
            seed = tf.stack([number, tf.constant(0, tf.int64)])
            number = tf.random.stateless_uniform([], seed, maxval=count, dtype=tf.int64)
        exchanges = [
            functools.partial(_exchanged, step.over, weights, round_) for round_ in range(count)
        ]
        with channels_of_its_own(step):
            theirs = tf.switch_case(tf.cast(number % count, tf.int32), exchanges)
        pairs = zip(theirs, weights, strict=True)
        return [tf.ensure_shape(other, mine.shape) for other, mine in pairs]


def rounds(size: int) -> int:
    """After how many steps ranks have had all their partners."""
    if size & (size - 1) == 0:
        return max(1, size.bit_length() - 1)
    return size if size % 2 else size - 1


def partner_of(rank: int, size: int, round_: int) -> int:
    """The partner of a rank, counted from 0; the rank itself if it has none.

    Of 2, 4, 8... ranks the corners of a hypercube, a dimension a round; of others a tournament in
    which each meets all others.
    """
    if size & (size - 1) == 0:
        return rank ^ (1 << round_) if size > 1 else rank
    odd = size if size % 2 else size - 1
    if rank == odd:  # the last of an even number meets the one that has no other
        return round_ * (odd + 1) // 2 % odd
    partner = (round_ - rank) % odd
    return size - 1 if partner == rank and odd < size else partner


def _exchanged(over: Communicator, weights: Sequence[tf.Tensor], round_: int) -> list[tf.Tensor]:
    """What the partner of a round has, in one message each way."""
    partner = partner_of(over.rank, over.size, round_)
    label = f"weights to the partner of round {round_}"
    theirs = list(weights)
    for kind in sorted({tensor.dtype.name for tensor in weights}):
        if partner == over.rank:
            ops.skip_channels(2)
            continue
        places = [i for i, tensor in enumerate(weights) if tensor.dtype.name == kind]
        own = flat([weights[i] for i in places])
        # Each way has a channel, on both: first that of the lower rank.
        if over.rank < partner:
            ops.send(own, partner, label, over)
            posted = ops.post(own.shape, own.dtype, partner, label, over)
        else:
            posted = ops.post(own.shape, own.dtype, partner, label, over)
            ops.send(own, partner, label, over)
        parts = parted(ops.take(posted), [weights[i] for i in places])
        for i, part in zip(places, parts, strict=True):
            theirs[i] = part
    return [tf.identity(tensor) for tensor in theirs]
