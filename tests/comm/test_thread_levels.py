"""MPI may have been started for fewer threads than the backend has: then they take turns."""

from __future__ import annotations

import pytest

from tests.comm import job

SCRIPT = """
import sys

import mpi4py

mpi4py.rc.thread_level = sys.argv[1]

import keras
import numpy as np
from mpi4py import MPI

import tnt_notebook as tnt
from tnt_notebook import comm
from tnt_notebook.errors import CommunicationError, PeerError

assert MPI.Query_thread() == getattr(MPI, "THREAD_" + sys.argv[1].upper())


def collectives(w):
    for i in range(1000):
        total = w.allreduce(np.full(i * 37 % 5000, w.rank + i))
        assert (total == w.size * i + sum(range(w.size))).all()
        if i % 100 == 0:
            assert w.gather_numbers(w.rank) == list(range(w.size))


def failures(w):
    w.recover()  # all are here
    for _ in range(10):
        if w.rank == 1:
            w.abort("rank 1: gives up")
        try:
            w.allreduce(np.ones(100_000))
            raise AssertionError("not freed")
        except (CommunicationError, PeerError):
            pass
        w.recover()
        assert w.allreduce(np.array(1)) == w.size
        w.recover()


def training():
    keras.utils.set_random_seed(1)
    layers = [keras.layers.Dense(64, "relu") for _ in range(6)]
    model = tnt.Model(keras.Sequential([keras.Input((8,)), *layers, keras.layers.Dense(1)]),
                      bucket_mb=0.01)
    model.compile("sgd", "mse")
    x = np.random.default_rng(0).normal(size=(64, 8)).astype("float32")
    history = model.fit(x, x.sum(1), batch_size=16, epochs=2, verbose=0)
    return history.history["loss"][-1]


losses = []
for transport in ("mpi", "auto"):
    w = comm.World(MPI.COMM_WORLD, timeout_s=60, transport=transport, lanes=2)
    collectives(w)
    failures(w)
    with comm.use(w):
        losses.append(training())
    # Both worlds stay open: the threads of one do not disturb the other.
assert abs(losses[0] - losses[1]) < 1e-5, losses
print("rank", MPI.COMM_WORLD.rank, "is done", flush=True)
"""


@pytest.mark.parametrize("level", ["single", "funneled", "serialized"])
def test_collectives_failures_and_training(tmp_path, level):
    started = job.start(tmp_path, 2, SCRIPT, level)
    output = job.output_of(started, 200)
    assert started.returncode == 0, output
    assert all(f"rank {rank} is done" in output for rank in range(2)), output
