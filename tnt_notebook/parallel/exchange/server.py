"""``server``: a parameter server, of which each rank is a part.

::

    rank's step    its optimizer -> update --> each rank adds its part of it to the weights there
    its next one   weights <------------------ each rank answers, unless another rank is too far
                                               behind
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import keras
import tensorflow as tf

from tnt_notebook.comm import ops
from tnt_notebook.comm.server import leave, serve
from tnt_notebook.errors import ModelError
from tnt_notebook.parallel.exchange import Apply, ExchangeStep, Gradients, Variables
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

_LABEL = "served weights"


@dataclass(frozen=True)
class Server(LocalUpdates):
    """The optimizer of each rank applies the rank's own gradients. What that changes, by the rank's
    share of the batch, is added to weights that the ranks serve, each a part of them, beside what
    it computes. A rank goes on with what is there, and waits only while another rank is too far
    behind. At the end of an epoch all take what is served.

    Attributes:
        staleness: by how many steps a rank may be ahead of another. 0: each step waits for all, and
            with SGD the result is that of one process. With 1 and more the answer travels while the
            next step computes. As many as an epoch has: nobody waits (asynchronous).
    """

    source: ClassVar[str] = (
        "Ho et al., stale synchronous parallel parameter server, NeurIPS 2013; "
        "Li et al., Parameter Server, OSDI 2014"
    )

    staleness: int = 4

    def __post_init__(self) -> None:
        if self.staleness < 0:
            raise ValueError("server takes a staleness of at least 0")

    @property
    def ahead(self) -> int:
        return self.staleness

    def apply(
        self, step: ExchangeStep, apply: Apply, gradients: Gradients, variables: Variables
    ) -> None:
        own = trained(gradients, variables)
        _check(own)
        before = flat(values(own))
        apply(gradients, variables)
        tell_when_ready(step.over, [g for g in gradients if g is not None])
        update = (flat(values(own)) - before) * tf.cast(step.scale, tf.float32)
        with channels_of_its_own(step) as number:
            served, behind = serve(update, before, self.staleness, _LABEL, step.over)
        tell_waiting(step.over, [update], [served])
        assign_all(own, parted(served, own))
        if number == 0:
            seen, lacked = _behind(step), tf.cast(behind, tf.float64)
            seen.assign(tf.stack([seen[0] + 1, seen[1] + lacked, tf.maximum(seen[2], lacked)]))

    def come_together(self, step: ExchangeStep, variables: Sequence[keras.Variable]) -> None:
        with channels_of_its_own(step):
            part = leave(_LABEL, step.over)
        whole = ops.allgather(part, label=_LABEL, over=step.over)
        if len(whole):  # else there were no steps since the last time
            assign_all(variables, parted(whole, variables))

    def seen(self, step: ExchangeStep) -> str:
        apart = super().seen(step)
        steps, lacked, most = _behind(step).numpy()
        if not steps:
            return apart
        mean = f"weights lacked {lacked / steps:.1f} steps of the slowest rank, {most:.0f} at most"
        return f"{apart}; {mean}" if apart else mean


def _behind(step: ExchangeStep) -> tf.Variable:
    """Of what this rank was served: how many times, how many steps of the slowest rank that lacked
    in all, and at most; float64 [3]."""
    return step.keep("behind", like=tf.TensorSpec([3], tf.float64))


def _check(variables: Sequence[keras.Variable]) -> None:
    others = [v.path for v in variables if v.dtype != "float32"]
    if others:
        raise ModelError(
            f"The exchange server serves weights of float32, which {', '.join(others)} are not: "
            "train in float32 or mixed precision, or take another exchange."
        )
