"""How gradients are exchanged between ranks: the extension point.

An exchange is a function::

    def exchange(gradients, variables, scale, over): ...

that gets this rank's gradients (``tf.Tensor`` or ``tf.IndexedSlices``, one for each variable), the
``keras.Variable`` they belong to, a scalar tensor ``scale`` (this rank's share of the global batch:
the shares of all ranks add up to 1, and it is 0 where a rank has no data) and the
:class:`~tnt_notebook.comm.World`. It returns gradients of the same structure: the sum over ranks of
``scale * gradient``, or what it wants the optimizer to see instead. It is called while the training
step is traced, and builds graph. Pass it as ``tnt.Model(model, exchange=...)``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import keras
    import tensorflow as tf

    from tnt_notebook.comm import World

#: A function of gradients, variables, scale and world, as described above; it returns gradients.
Exchange = Callable[[Sequence[Any], "Sequence[keras.Variable]", "tf.Tensor", "World"], list[Any]]

__all__ = ["Exchange"]
