"""MPI may have been started for fewer threads than the backend has: then they take turns."""

import pytest

from tests.comm import job
from tests.support.cases import THOROUGH

SCRIPT = """
import sys

import mpi4py

mpi4py.rc.thread_level = sys.argv[1]

import keras
from mpi4py import MPI

import tnt_notebook as tnt
from tests.comm.test_failures import abort_amid_large_messages
from tests.comm.test_mixed_sequences import carry_out
from tests.parallel.models import classification, mlp
from tnt_notebook import comm

assert MPI.Query_thread() == getattr(MPI, "THREAD_" + sys.argv[1].upper())
losses = []
for transport in ("mpi", "auto"):
    w = comm.World(MPI.COMM_WORLD, timeout_s=60, transport=transport, lanes=2)
    with comm.use(w):
        carry_out(1, 500)
        for _ in range(10):
            w.recover()  # all are here
            assert abort_amid_large_messages() == w.size
        keras.utils.set_random_seed(1)
        history = tnt.Model(mlp(), bucket_mb=0.001).fit(*classification(), epochs=2, verbose=0)
        losses.append(history.history["loss"][-1])
    # Both worlds stay open: the threads of one do not disturb the other.
assert abs(losses[0] - losses[1]) < 1e-5, losses
print("rank", MPI.COMM_WORLD.rank, "is done", flush=True)
"""


@pytest.mark.parametrize("level", ["single", *["serialized", "funneled"] * THOROUGH])
def test_collectives_failures_and_training(tmp_path, level):
    status, output = job.run(tmp_path, 2, SCRIPT, level)
    assert status == 0, output
    assert all(f"rank {rank} is done" in output for rank in range(2)), output
