"""A script in a job that is queued again when its time is over, as its documentation shows it."""

import re
import shlex
import sys
from pathlib import Path

import numpy as np

from tests.support.rank_pool import ROOT, rank_environment
from tests.support.slurm import Slurm
from tests.support.waiting import eventually
from tnt_notebook.cluster.launch.command import find_mpiexec

TRAIN = """
import os, sys, time
from pathlib import Path
import keras, numpy as np, tnt_notebook as tnt
from tnt_notebook import comm

folder, pause = Path(sys.argv[1]), float(sys.argv[2])
if "SLURM_RESTART_COUNT" in os.environ:
    pause = 0
keras.utils.set_random_seed(3)
x = np.random.default_rng(0).normal(size=(512, 8)).astype("float32")
model = keras.Sequential([keras.layers.Dense(16), keras.layers.Dropout(0.2), keras.layers.Dense(1)])
model = tnt.Model(model, checkpoint=tnt.Checkpoint(folder / "kept", every_s=600))
model.compile("adam", "mse")

class Slow(keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        time.sleep(pause)
        if comm.rank() == 0:
            with open(folder / "steps", "a") as steps:
                print(batch, file=steps)

loss = model.fit(
    x, x.sum(1, keepdims=True), batch_size=64, epochs=6, verbose=0, callbacks=[Slow()]
).history["loss"]
if comm.rank() == 0:
    np.savez(folder / "end.npz", loss, *model.get_weights())
"""


def submit(slurm: Slurm, folder: Path, pause: float) -> int:
    folder.mkdir()
    (folder / "train.py").write_text(TRAIN)
    words = [sys.executable, str(folder / "train.py"), str(folder), str(pause)]
    page = (ROOT / "docs" / "guide" / "checkpoints.md").read_text()
    script = re.search(r"```bash\n(.*?)```", page, re.DOTALL)[1]
    script = script.replace("mpiexec", shlex.quote(str(find_mpiexec())), 1)
    script = script.replace("python train.py", shlex.join(words))
    # The nodes are one machine: the daemons of MPI must not all take the same port.
    environment = {
        k: v for k, v in rank_environment().items() if not k.endswith(("_port", "_ports"))
    }
    return slurm.submit(script, "--nodes=2", "--ntasks=2", "--time=10", env=environment)


def test_a_run_over_two_jobs_ends_as_one_that_was_not_broken_off(slurm, tmp_path):
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    beside = submit(slurm, whole, 0.0)
    job = submit(slurm, parts, 0.25)
    steps = parts / "steps"
    eventually(lambda: steps.exists() and len(steps.read_text().splitlines()) > 10)
    # What Slurm sends before a time limit, as the script asks for.
    slurm.run(["scancel", "--batch", "--signal=USR2", str(job)], check=True)
    slurm.wait(job, "PENDING", seconds=30)
    before = len(steps.read_text().splitlines())
    assert 10 < before < 48 and not (parts / "end.npz").exists(), slurm.output(job)
    slurm.start_soon(job)
    slurm.wait(job, "COMPLETED", seconds=60)
    slurm.wait(beside, "COMPLETED", seconds=60)
    assert len(steps.read_text().splitlines()) == 48, slurm.output(job)
    with np.load(whole / "end.npz") as expected, np.load(parts / "end.npz") as found:
        for name in expected.files:
            np.testing.assert_array_equal(found[name], expected[name], err_msg=name)
