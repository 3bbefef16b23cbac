"""Clusters as jobs of PBS, LSF and Grid Engine: real jobs, of played batch systems."""

import os
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.batch import Batch, batch
from tests.support.cases import THOROUGH
from tests.support.program import program
from tests.support.shared_cluster import started
from tnt_notebook.cluster import Cluster
from tnt_notebook.cluster.files.folder import RunFolder
from tnt_notebook.errors import ClusterError
from tnt_notebook.warden import processes_of


@pytest.fixture(params=["pbs", "lsf", "sge"], scope="module")
def system(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator:
    folder = tmp_path_factory.mktemp("clusters")
    with batch(request.param) as system, pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", system.path)
        patch.setenv("TNT_RUN_DIR", str(folder / "runs"))
        yield system


def on_two_nodes(system: Batch) -> dict[str, Any]:
    """A node offers one slot; in Grid Engine that is all that spreads ranks."""
    return {"launcher": system.name, **({} if system.name == "sge" else {"nodes": 2})}


def left() -> list[Path]:
    """What clusters of these tests have left behind."""
    return list(Path(os.environ["TNT_RUN_DIR"]).glob("*"))


def check_who_may_read(folder: RunFolder) -> None:
    """The files of a job are for its owner only, and tokens are in none of them."""
    for path in (*folder.all, folder.path.parent):  # who cannot enter them reads nothing in them
        assert stat.S_IMODE(path.stat().st_mode) == 0o700
        for file in filter(Path.is_file, path.rglob("*")):
            assert b"very-secret" not in file.read_bytes(), file
    keys = list((folder.profile / "security").glob("ipcontroller-*.json"))
    ours = ("job.sh", "environment.sh", "cluster.json", "profile/ipcontroller_config.py")
    for file in [*keys, *(folder.path / name for name in ours), *folder.path.glob("logs/*.log")]:
        assert stat.S_IMODE(file.stat().st_mode) & 0o077 == 0, file


def test_start_run_restart_stop(system, monkeypatch):
    monkeypatch.setenv("OF_THE_NOTEBOOK", "two words")
    monkeypatch.setenv("JUPYTERHUB_API_TOKEN", "very-secret")
    with started(2, **on_two_nodes(system), time="10", env={"MINE": "'quoted'"}) as cluster:
        cluster_id, job = cluster.id, cluster.record.job or ""
        assert system.job(job)["state"] == "running"
        assert len(set(system.job(job)["hosts"])) == 2 and set(system.reached()) == {"node-2"}
        cluster.run("import os; here = (os.getcwd(), *map(os.environ.get, names))".replace(
            "names", "('OF_THE_NOTEBOOK', 'MINE', 'JUPYTERHUB_API_TOKEN')"))  # fmt: skip
        for rank in (0, 1):
            assert cluster.pull("here", rank) == (os.getcwd(), "two words", "'quoted'", None)
        check_who_may_read(cluster.folder)
        if system.name == "pbs" or THOROUGH:  # their scripts are alike
            cluster.restart()
            assert cluster.record.job == job
            with pytest.raises(ClusterError, match="'here' is not defined"):
                cluster.pull("here")
    assert system.job(job)["how"] == "cancelled"
    assert processes_of(cluster_id) == [] and left() == []


def test_a_host_without_the_batch_system_is_told_at_once(system, monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(ClusterError, match="sub was not found: this host submits no jobs of"):
        Cluster(2, launcher=system.name)
    assert left() == []


def test_what_is_refused_is_shown_whole(system):
    said = {
        "pbs": "(?s)qsub refused the job.*qsub: Unknown queue",
        "lsf": "(?s)bsub refused the job.*nowhere: No such queue. Job not submitted.",
        "sge": '(?s)qsub refused the job.*unknown queue "nowhere".\nExiting.',
    }[system.name]
    with pytest.raises(ClusterError, match=said):
        Cluster(2, launcher=system.name, partition="nowhere")
    assert left() == []


def test_a_job_that_waits_says_for_what_and_can_be_given_up(system):
    system.hold("Insufficient amount of resource: ncpus (R: 2 A: 0 T: 8)")
    waits = f"""
from tnt_notebook.cluster import Cluster
from tnt_notebook.cluster.files.folder import RunFolder
Cluster(2, launcher={system.name!r}, report=lambda line: print(line, flush=True))
"""
    try:
        with program(waits, stderr=subprocess.PIPE) as owner:
            # Whatever it says before, as of what an earlier test has left.
            said = next(line for line in owner.stdout if " is pending: " in line)
            job = system.jobs()[-1]
            assert f"job {job['id']} is pending: " in said
            assert "Insufficient amount of resource: ncpus (R: 2 A: 0 T: 8)" in said
            owner.send_signal(2)  # as the notebook's interrupt
            owner.communicate(timeout=180)
        assert system.job(job["id"])["how"] == "cancelled" and left() == []
    finally:
        system.hold(None)


@pytest.mark.parametrize("system", ["sge"], indirect=True)  # it takes two commands there
def test_the_end_of_the_job_is_told_with_its_reason(system):
    with started(2, launcher=system.name) as cluster:
        job = cluster.record.job or ""
        system.expire(job)
        with pytest.raises(ClusterError, match=f"(?s)died.*job {job} has ended: its time was over"):
            cluster.run("import time; time.sleep(30)")
    assert left() == []
