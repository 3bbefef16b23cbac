"""Ranks add up gradients in the memory that these have."""

import numpy as np

from tests.comm import job

EXCHANGES = """
import numpy as np
import tensorflow as tf

from tnt_notebook import comm
from tnt_notebook.comm import ops

world, count, n = comm.world(), 1 << 22, 3
owners = [0, 1, 1]
OF = {
    "allreduce": lambda made: ops.allreduce(made),
    "reduce_to_owner": lambda made: ops.reduce_to_owner(made, owners),
    "share_owned": lambda made: ops.share_owned(made, owners),
}


def memory():
    return tf.config.experimental.get_memory_info("CPU:0")


def exchanged(name, x, is_read):
    made = [x * factor for factor in (2.0, 3.0, 4.0)]
    with ops.channels():
        got = [g for g in OF[name](made) if g is not None]
    ends = [tf.reduce_sum(one) for one in got]
    if is_read:
        with tf.control_dependencies(ends):
            ends += [tf.reduce_sum(one) for one in made]
    return ends


for name in OF:
    for is_read in (False, True):
        function = tf.function(exchanged, autograph=False).get_concrete_function(
            name, tf.TensorSpec((count,)), is_read
        )
        x = tf.fill((count,), 1.0 + world.rank)
        function(x)
        before = memory()["current"]
        tf.config.experimental.reset_memory_stats("CPU:0")
        sums = [float(end) / count for end in function(x)]
        world.barrier()
        print("found", world.rank, name, is_read, (memory()["peak"] - before) / (4 * count), *sums)
"""


def test_an_exchange_takes_no_memory_of_its_own(tmp_path):
    """Unless somebody reads what went in: then that is as it was."""
    status, output = job.run(tmp_path, 2, EXCHANGES, TF_CPU_ALLOCATOR_USE_BFC="1")
    assert status == 0, output
    lines = [line.split()[1:] for line in output.splitlines() if line.startswith("found")]
    assert len(lines) == 12, output
    for rank, name, is_read, tensors, *sums in lines:
        own = 1.0 + int(rank)
        got = {
            "allreduce": [6.0, 9.0, 12.0],
            "reduce_to_owner": [[6.0], [9.0, 12.0]][int(rank)],
            "share_owned": [2.0, 6.0, 8.0],
        }[name]
        read = [2 * own, 3 * own, 4 * own] if is_read == "True" else []
        np.testing.assert_allclose([float(s) for s in sums], [*got, *read], rtol=1e-3)
        # Three tensors are made; then there is what comes out where others may not write.
        most = 3 + (len(got) if read else 0 if name != "share_owned" else 1 + (rank == "0"))
        assert abs(float(tensors) - most) < 0.1, (rank, name, is_read, tensors)
