"""Weights that ranks serve to each other, a part each: see kernels/engine/server.h."""

from __future__ import annotations

import tensorflow as tf

from tnt_notebook.comm import ops
from tnt_notebook.comm.communicator import Communicator
from tnt_notebook.comm.current import world

#: Ranks update and answer each other, each on a channel of its own.
_CHANNELS_PER_RANK = 4


@tf.autograph.experimental.do_not_convert
def serve(
    update: tf.Tensor,
    weights: tf.Tensor,
    staleness: int,
    label: str = "",
    over: Communicator | None = None,
) -> tuple[tf.Tensor, tf.Tensor]:
    """Adds an update to the weights that all ranks of ``over`` serve, and gives what they are then.

    The first call on its channels begins to serve, :func:`leave` ends it. Without staleness a call
    waits for the updates of all ranks. With it, it gives the answer to the update before, which has
    had a step's time to travel, and this update added to it.

    Args:
        update: float32 [weights].
        weights: float32 [weights], the same on all ranks: what the first call begins with.
        staleness: how many updates of this rank's may be there before one of another rank's.
        label: what is served, for error messages; the same on all ranks.

    Returns:
        The weights, and how many updates of the slowest rank's they lacked, an int64 scalar.
    """
    over = over or world()
    with ops.on_next_channel() as channel:
        served, behind = ops.library().tnt_serve(
            update=update,
            weights=weights,
            staleness=staleness,
            **ops.address(over, channel, label or "served weights"),
        )
    ops.skip_channels(_CHANNELS_PER_RANK * over.size - 1)
    ops.run_when_ready(served, channel)
    return tf.ensure_shape(served, update.shape), tf.ensure_shape(behind, [])


@tf.autograph.experimental.do_not_convert
def leave(label: str = "", over: Communicator | None = None) -> tf.Tensor:
    """Sends no more updates; when no rank does, gives the part of the weights that this rank
    serves, float32 [part]: one after another, those of all ranks are the weights. Empty on all
    ranks where nothing is served on these channels. Collective.
    """
    over = over or world()
    with ops.on_next_channel() as channel:
        part = ops.library().tnt_leave_server(
            **ops.address(over, channel, label or "served weights")
        )
    ops.skip_channels(_CHANNELS_PER_RANK * over.size - 1)
    ops.run_when_ready(part, channel)
    return tf.ensure_shape(part, [None])
