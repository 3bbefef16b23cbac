"""Scripts started with mpiexec, without a notebook."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

from tests.support.rank_pool import mpiexec, rank_environment

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


def run(tmp_path: Path, n: int, source: str) -> subprocess.CompletedProcess[str]:
    script = tmp_path / "script.py"
    script.write_text(source)
    return subprocess.run(
        [*mpiexec(n), sys.executable, str(script)],
        cwd=tmp_path,
        env={**rank_environment(), "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        timeout=120,
    )


def test_a_script_trains_on_all_ranks_and_prints_progress_once(tmp_path):
    ended = run(tmp_path, 3, TRAIN)
    assert ended.returncode == 0, ended.stderr
    lines = ended.stdout.splitlines()
    losses = {line.split()[-1] for line in lines if line.startswith("rank ")}
    assert len(losses) == 1
    assert sum(line.startswith("Epoch 1/2") for line in lines) == 1
    assert (tmp_path / "trained.keras").exists()


def test_a_script_that_raises_on_one_rank_ends_on_all_and_names_it(tmp_path):
    began = time.monotonic()
    ended = run(tmp_path, 3, RAISE)
    assert ended.returncode != 0
    assert time.monotonic() - began < 30
    assert "ValueError: broken on purpose" in ended.stderr
    assert "because rank 1: ValueError: broken on purpose" in ended.stderr


def test_a_rank_that_does_not_hear_of_it_is_ended_as_well(tmp_path):
    began = time.monotonic()
    ended = run(tmp_path, 2, SLEEP)
    assert ended.returncode != 0
    assert time.monotonic() - began < 60


def test_a_killed_rank_ends_the_others(tmp_path):
    assert run(tmp_path, 2, KILLED).returncode != 0
