"""Another engine takes the seat of one that has died, again and again."""

from __future__ import annotations

import os
import signal
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.support.waiting import eventually
from tnt_notebook.cluster import Cluster
from tnt_notebook.cluster.recovery import start_missing
from tnt_notebook.errors import DeathError

SUMS = """
import numpy as np
from tnt_notebook import comm
while True:
    comm.world().allreduce(np.ones(1000))
"""


def test_rank_0_dies_and_then_its_successor() -> None:
    cluster = Cluster(3)
    try:
        cluster.run("from tnt_notebook import comm; mine = comm.rank()")
        for victim in (0, 0, 2):
            pid = cluster.status()[victim].pid
            with ThreadPoolExecutor() as threads:
                sums = threads.submit(cluster.run, SUMS)
                eventually(lambda: {row.state for row in cluster.status()} == {"busy"})
                os.kill(pid, signal.SIGKILL)
                with pytest.raises(DeathError, match=f"rank {victim} died on "):
                    sums.result(10)
            start_missing(cluster)
            cluster.run("from tnt_notebook import comm")
            cluster.run("all_ = comm.world().gather_numbers(comm.rank())")
            assert [cluster.pull("all_", rank) for rank in range(3)] == [[0, 1, 2]] * 3
            assert cluster.pull("mine", 1) == 1
    finally:
        cluster.stop()
