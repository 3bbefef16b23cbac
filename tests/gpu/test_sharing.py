"""Which GPU a rank sees, how much of its memory it takes, and what it gives back."""

import os

import pytest

from tests.gpu.nvml import Device
from tests.support.shared_cluster import started
from tests.support.waiting import eventually
from tnt_notebook.cluster import Cluster
from tnt_notebook.cluster.launch.gpus import gpu_count
from tnt_notebook.errors import ClusterError

SEEN = """
import os, tensorflow as tf
seen = [os.environ.get("CUDA_VISIBLE_DEVICES"), len(tf.config.list_physical_devices("GPU"))]
"""

#: Makes the rank hold 256 MiB of its GPU.
HOLD = """
import tensorflow as tf
with tf.device("/GPU:0"):
    held = tf.Variable(tf.zeros((256, 1 << 18)))
print(float(tf.reduce_sum(held)))
"""
HELD = 256 << 20

#: Rank 1 is killed while the others wait for it.
DIE = """
import os, signal
from tnt_notebook import comm
if comm.rank() == 1:
    os.kill(os.getpid(), signal.SIGKILL)
comm.world().barrier()
"""


def test_no_gpus_hides_all_of_them() -> None:
    with started(2, gpus=0) as cluster:
        cluster.run(SEEN)
        assert [cluster.pull("seen", rank) for rank in range(2)] == [["-1", 0]] * 2
        assert [row.gpu for row in cluster.status()] == ["-1"] * 2


def test_each_rank_sees_one_gpu_and_ranks_beyond_them_share() -> None:
    count = gpu_count()
    given = os.environ.get("CUDA_VISIBLE_DEVICES", ",".join(map(str, range(count)))).split(",")
    expected = [given[rank % count] for rank in range(count + 1)]
    with started(count + 1, gpus=count) as cluster:
        cluster.run(SEEN)
        seen = [cluster.pull("seen", rank) for rank in range(count + 1)]
        assert seen == [[name, 1] for name in expected]
        assert [row.gpu for row in cluster.status()] == expected


def test_more_gpus_than_there_are_are_refused() -> None:
    count = gpu_count()
    with pytest.raises(ClusterError, match=f"this machine has {count} GPU.* to offer"):
        Cluster(1, gpus=count + 1)


def test_a_rank_takes_the_memory_that_it_needs_and_not_the_whole_gpu(
    gpu: Device, capsys: pytest.CaptureFixture[str]
) -> None:
    with started(2, gpus=1) as cluster:
        before = gpu.used()
        cluster.run(HOLD)
        assert capsys.readouterr().out == "ranks 0-1: 0.0\n"
        # Beside what they hold, each has the CUDA runtime's context.
        assert 2 * HELD <= gpu.used() - before < gpu.memory / 2


def test_the_gpu_gets_the_memory_of_a_killed_rank_back_and_the_others_are_told(
    gpu: Device, capsys: pytest.CaptureFixture[str]
) -> None:
    with started(2, gpus=1) as cluster:
        cluster.run(HOLD)
        both = gpu.used()
        with pytest.raises(ClusterError, match="rank 1 died"):
            cluster.run(DIE)
        eventually(lambda: gpu.used() <= both - HELD)
        capsys.readouterr()
        cluster.run("print(float(tf.reduce_max(held + 1)))")
        assert capsys.readouterr().out == "rank 0: 1.0\n"
