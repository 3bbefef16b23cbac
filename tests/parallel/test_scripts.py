"""Scripts started with mpiexec, without a notebook."""

from __future__ import annotations

import time

import pytest

from tests.comm import job

TRAIN = """
import keras, numpy as np
import tnt_notebook as tnt

keras.utils.set_random_seed(1)
x = np.random.default_rng(0).normal(size=(64, 4)).astype("float32")
model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
model = tnt.Model(model)
model.compile("sgd", "mse")
history = model.fit(x, x.sum(1), batch_size=16, epochs=2, verbose=2)
if tnt.world().rank == 0:
    model.save("trained.keras")
print("rank", tnt.world().rank, f"{history.history['loss'][-1]:.6f}")
"""

RAISE = """
import tnt_notebook as tnt

rank = tnt.world().rank
if rank == 1:
    raise ValueError("broken on purpose")
tnt.world().barrier()
"""

SLEEP = """
import time
import tnt_notebook as tnt

rank = tnt.world().rank
print("rank", rank, "is up", flush=True)
if rank == 1:
    raise ValueError("broken on purpose")
time.sleep(600)  # does not hear of it
"""

KILLED = """
import os, signal
import tnt_notebook as tnt

if tnt.world().rank == 1:
    os.kill(os.getpid(), signal.SIGKILL)
tnt.world().barrier()
"""


def test_a_script_trains_on_all_ranks_and_prints_progress_once(tmp_path):
    status, output = job.run(tmp_path, 3, TRAIN)
    assert status == 0, output
    lines = output.splitlines()
    losses = {line.split()[-1] for line in lines if line.startswith("rank ")}
    assert len(losses) == 1
    assert sum(line.startswith("Epoch 1/2") for line in lines) == 1
    assert (tmp_path / "trained.keras").exists()


def test_a_script_that_raises_on_one_rank_ends_on_all_and_names_it(tmp_path):
    began = time.monotonic()
    status, output = job.run(tmp_path, 3, RAISE)
    assert status != 0
    assert time.monotonic() - began < 30
    assert "because rank 1: ValueError: broken on purpose" in output


@pytest.mark.parametrize("source", [SLEEP, KILLED], ids=["does not hear of it", "waits"])
def test_a_rank_that_raises_or_is_killed_ends_the_others(tmp_path, source):
    began = time.monotonic()
    status, _ = job.run(tmp_path, 2, source)
    assert status != 0
    assert time.monotonic() - began < 60
