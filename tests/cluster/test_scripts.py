"""Scripts and commands that start engines, as ``--dry-run`` shows them, beside golden files."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tnt_notebook.cluster.folder import RunFolder
from tnt_notebook.cluster.launch import launch_of
from tnt_notebook.cluster.launch.command import find_mpiexec, guarded
from tnt_notebook.cluster.request import request

GOLDEN = Path(__file__).with_name("golden")
FULL: dict[str, Any] = {
    "nodes": 2,
    "gpus": 4,
    "cores": 3,
    "time": "1-12:00:00",
    "partition": "gpu",
    "account": "physics",
    "modules": ["cuda/12.4", "hdf5"],
    "env": {"KERAS_HOME": "/scratch/it's here"},
}
CASES: dict[str, tuple[int, dict[str, Any]]] = {
    "local": (4, {"launcher": "local", "gpus": 2, "cores": 1, "extra": ["--display bind"]}),
    "local-modules": (2, {"launcher": "local", "modules": ["cuda/12.4"]}),
    "ssh": (3, {"launcher": "ssh", "hostfile": "hosts"}),
    "ssh-full": (4, {"launcher": "ssh", "hostfile": "hosts", "per_node": 2, "modules": ["cuda"]}),
    "slurm": (4, {"launcher": "slurm"}),
    "slurm-full": (5, {"launcher": "slurm", **FULL, "extra": ["--qos=high", "--exclusive"]}),
    "slurm-inside": (4, {"launcher": "slurm", "inside": True}),
    "pbs": (4, {"launcher": "pbs"}),
    "pbs-full": (5, {"launcher": "pbs", **FULL, "extra": ["-W umask=077"]}),
    "pbs-per-node": (6, {"launcher": "pbs", "per_node": 4}),
    "pbs-torque": (8, {"launcher": "pbs", "nodes": 2, "extra": ["-l nodes=2:ppn=4"]}),
    "pbs-inside": (4, {"launcher": "pbs", "inside": True}),
    "lsf": (4, {"launcher": "lsf"}),
    "lsf-full": (5, {"launcher": "lsf", **FULL, "extra": ["-x"]}),
    "sge": (4, {"launcher": "sge"}),
    "sge-full": (5, {"launcher": "sge", **FULL, "extra": ["-pe mpi-4 16", "-l h_vmem=4G"]}),
    "sge-inside": (4, {"launcher": "sge", "inside": True, "cores": 2}),
}


@pytest.mark.parametrize("case", CASES)
def test_what_is_shown(case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1})
    Path("hosts").write_text("node1 slots=2\nnode2:2\n")
    ranks, options = CASES[case]
    folder = RunFolder(Path("/home/user/clusters/tnt-ID-NAME"), Path("/dev/shm/tnt-ID-NAME"))
    inherited = {"PATH": "/bin", "SLURM_JOB_ID": "7"}
    shown = launch_of(request(ranks, **options), folder, "ID", inherited).shown
    for here, name in {
        str(find_mpiexec()): "MPIEXEC",
        sys.executable: "PYTHON",
        guarded(find_mpiexec(), here=True)["LD_PRELOAD"].partition(":")[0]: "GUARD",
        os.getcwd(): "NOTEBOOK",
    }.items():
        shown = shown.replace(here, name)
    assert shown.rstrip() + "\n" == (GOLDEN / f"{case}.sh").read_text()


@pytest.mark.parametrize("file", sorted(GOLDEN.glob("*.sh")), ids=lambda file: file.stem)
def test_the_shell_understands_it(file: Path) -> None:
    assert file.stem in CASES
    run = subprocess.run(["bash", "-n", file], capture_output=True, text=True)
    assert (run.returncode, run.stderr) == (0, "")
