"""Engine side: ranks, and collectives between them, over the C++ backend::

    from tnt_notebook import comm

    comm.rank(), comm.size()
    mean = comm.world().allreduce(array, "mean")

Importing this package loads neither MPI nor TensorFlow; the first use of the world loads MPI, and
:mod:`tnt_notebook.comm.ops` loads TensorFlow.
"""

from __future__ import annotations

from tnt_notebook.comm.buckets import Bucket
from tnt_notebook.comm.communicator import Communicator, Group
from tnt_notebook.comm.current import abort, rank, size, survives, use, world
from tnt_notebook.comm.world import World

__all__ = [
    "Bucket", "Communicator", "Group", "World", "abort", "rank", "size", "survives", "use", "world",
]  # fmt: skip
