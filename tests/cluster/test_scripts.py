"""Scripts and commands that start engines, as ``--dry-run`` shows them, beside golden files.

Of a script that is like another one, the golden file has what differs: slices of the other one's
lines, each followed by the lines that stand there instead.
"""

import os
import subprocess
import sys
from collections.abc import Iterator
from difflib import SequenceMatcher
from pathlib import Path
from typing import Any

import pytest

from tnt_notebook.cluster.files.folder import RunFolder
from tnt_notebook.cluster.launch.command import find_mpiexec, guarded
from tnt_notebook.cluster.launch.launch import launch_of
from tnt_notebook.cluster.launch.request import request

GOLDEN = Path(__file__).with_name("golden")
FULL: dict[str, Any] = {
    "nodes": 2, "gpus": 4, "cores": 3, "time": "1-12:00:00", "partition": "gpu",
    "account": "physics", "modules": ["cuda/12.4", "hdf5"],
    "env": {"KERAS_HOME": "/scratch/it's here"},
}  # fmt: skip
#: Ranks, options, and the case that it is like; the launcher is the first word of its name.
CASES: dict[str, tuple[int, dict[str, Any], str]] = {
    "local": (4, {"gpus": 2, "cores": 1, "extra": ["--display bind"]}, ""),
    "local-modules": (2, {"modules": ["cuda/12.4"]}, ""),
    "ssh": (3, {"hostfile": "hosts"}, ""),
    "ssh-full": (4, {"hostfile": "hosts", "per_node": 2, "modules": ["cuda"]}, ""),
    "pbs": (4, {}, ""),
    "pbs-full": (5, {**FULL, "extra": ["-W umask=077"]}, "pbs"),
    "pbs-per-node": (6, {"per_node": 4}, "pbs"),
    "pbs-torque": (8, {"nodes": 2, "extra": ["-l nodes=2:ppn=4"]}, "pbs"),
    "pbs-inside": (4, {"inside": True}, ""),
    "slurm": (4, {}, "pbs"),
    "slurm-full": (5, {**FULL, "memory": "64G", "extra": ["--qos=high", "--exclusive"]}, "slurm"),
    "slurm-inside": (4, {"inside": True}, ""),
    "lsf": (4, {}, "pbs"),
    "lsf-full": (5, {**FULL, "extra": ["-x"]}, "lsf"),
    "sge": (4, {}, "pbs"),
    "sge-full": (5, {**FULL, "extra": ["-pe mpi-4 16", "-l h_vmem=4G"]}, "sge"),
    "sge-inside": (4, {"inside": True, "cores": 2}, ""),
}


@pytest.mark.parametrize("case", CASES)
def test_what_is_shown(case, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1})
    Path("hosts").write_text("node1 slots=2\nnode2:2\n")
    lines, like = shown(case), CASES[case][2]
    understood = subprocess.run(["bash", "-n"], input="\n".join(lines), text=True)
    assert understood.returncode == 0
    golden = GOLDEN / (f"{case}.txt" if like else f"{case}.sh")
    found = list(changes(shown(like), lines)) if like else lines
    assert found == golden.read_text().splitlines()


def shown(case: str) -> list[str]:
    """The lines, with names for what is of this machine."""
    ranks, options, _ = CASES[case]
    folder = RunFolder(Path("/home/user/clusters/tnt-ID-NAME"), Path("/dev/shm/tnt-ID-NAME"))
    asked = request(ranks, launcher=case.partition("-")[0], **options)
    text = launch_of(asked, folder, "ID", {"PATH": "/bin", "SLURM_JOB_ID": "7"}).shown
    for here, name in {
        str(find_mpiexec()): "MPIEXEC",
        sys.executable: "PYTHON",
        guarded(find_mpiexec(), here=True)["LD_PRELOAD"].partition(":")[0]: "GUARD",
        os.getcwd(): "NOTEBOOK",
    }.items():
        text = text.replace(here, name)
    return text.rstrip().splitlines()


def changes(base: list[str], lines: list[str]) -> Iterator[str]:
    """What is to be done to the lines of one script so that they are those of another."""
    matcher = SequenceMatcher(None, base, lines, autojunk=False)
    for kind, begin, end, first, last in matcher.get_opcodes():
        if kind != "equal":
            yield f"[{begin}:{end}]"
            yield from lines[first:last]


def test_each_golden_file_belongs_to_a_case():
    assert {file.stem for file in GOLDEN.iterdir()} == set(CASES)
