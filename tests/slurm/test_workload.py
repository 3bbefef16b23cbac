"""The batch script that lies beside the tutorials."""

import os

from tests.support.rank_pool import ROOT, rank_environment
from tests.support.slurm import Slurm
from tnt_notebook.cluster.launch.command import find_mpiexec

WORKLOADS = ROOT / "notebooks" / "workloads"
SMALL = "--samples 40 --pixels 16 --filters 2 --batch-size 16 --epochs 1 --save"


def test_it_trains_by_a_script_on_all_ranks_of_a_job(slurm: Slurm, tmp_path):
    # The nodes are one machine: the daemons of MPI must not all take the same port.
    environment = {
        k: v for k, v in rank_environment().items() if not k.endswith(("_port", "_ports"))
    }
    beside_python = find_mpiexec().parent
    path = os.pathsep.join([str(beside_python), os.environ["PATH"]])
    job = slurm.submit(
        f"set -- {WORKLOADS / 'hep_cnn.py'} {SMALL} {tmp_path / 'model.keras'}\n"
        + (WORKLOADS / "train.sbatch").read_text(),
        "--nodes=2", "--ntasks-per-node=1", "--time=10",
        env={**environment, "PATH": path, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    slurm.wait(job, "COMPLETED", seconds=90)
    assert (tmp_path / "model.keras").exists(), slurm.output(job)
    assert slurm.output(job).count("val_loss") == 1, slurm.output(job)
