"""Clusters as jobs of a real Slurm."""

import itertools
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tests.support.cells import TRAIN
from tests.support.hosts import hosts, needed
from tests.support.program import program
from tests.support.rank_pool import ROOT
from tests.support.shared_cluster import started
from tests.support.slurm import slurm_on
from tests.support.waiting import eventually
from tnt_notebook.cluster import Cluster
from tnt_notebook.cluster.files import record
from tnt_notebook.errors import ClusterError, NoClusterError
from tnt_notebook.telemetry import runs
from tnt_notebook.warden import processes_of


def left() -> list[Path]:
    """What clusters of these tests have left behind."""
    return list(Path(os.environ["TNT_RUN_DIR"]).iterdir())


def test_start_train_attach_restart_stop(slurm):
    threads = threading.active_count()
    lines: list[str] = []
    cluster = Cluster(launcher="slurm", nodes=2, per_node=1, time="10", report=lines.append)
    try:
        cluster_id, job = cluster.id, int(cluster.record.job or 0)
        way = "engines reach this notebook at 127.0.0.1, on the way to"
        assert any(line.startswith(way) for line in lines)
        assert slurm.job(job)["NodeList"] == "node[1-2]" and slurm.job(job)["NumTasks"] == "2"
        assert slurm.job(job)["TimeLimit"] == "00:10:00"
        assert [row.state for row in cluster.status()] == ["idle", "idle"]
        cluster.run("import os; ours = os.environ['SLURM_JOB_ID']")
        fit = cluster.fit(TRAIN.format(epochs=100_000), {})
        eventually(lambda: fit.frames)

        cluster.let_go()
        with pytest.raises(ClusterError):
            fit.wait(10)
        assert record.find(cluster_id).kept is not None
        cluster = Cluster.attach(cluster_id)
        joined = cluster.begun_fit()
        assert joined is not None
        eventually(lambda: len(joined.frames) > 3)
        joined.stop()
        assert joined.wait(300).state == "stopped"
        assert cluster.pull("ours") == str(job)

        cluster.restart(report=lines.append)
        assert int(cluster.record.job or 0) == job, lines
        with pytest.raises(ClusterError, match="'ours' is not defined"):
            cluster.pull("ours")
    finally:
        cluster.stop()
    assert slurm.jobs()[job].state == "COMPLETED"
    assert processes_of(cluster_id) == [] and left() == []
    eventually(lambda: threading.active_count() <= threads)
    with pytest.raises(NoClusterError):
        cluster.status()


def test_what_slurm_refuses_is_shown_whole(slurm):
    with pytest.raises(ClusterError, match="(?s)sbatch refused the job.*invalid partition"):
        Cluster(2, launcher="slurm", partition="nowhere")
    with pytest.raises(ClusterError, match="(?s)sbatch refused.*unrecognized option"):
        Cluster(2, launcher="slurm", extra=["--no-such-option"])
    assert left() == []


def test_a_job_that_waits_says_for_what_and_can_be_given_up(slurm):
    for node in slurm.nodes:
        slurm.drain(node)
    waits = """
from tnt_notebook.cluster import Cluster
Cluster(2, launcher="slurm", report=lambda line: print(line, flush=True))
"""
    try:
        with program(waits, stderr=subprocess.PIPE) as owner:
            told = next(line for line in owner.stdout if "drained or down" in line)
            job = next(number for number, j in slurm.jobs().items() if j.state == "PENDING")
            assert f"job {job} is pending: " in told
            owner.send_signal(2)  # as the notebook's interrupt
            owner.communicate(timeout=180)
        assert slurm.jobs()[job].state == "CANCELLED" and left() == []
    finally:
        for node in slurm.nodes:
            slurm.resume(node)


@pytest.mark.thorough
def test_a_job_is_warned_before_its_time_limit_as_scripts_ask_for(slurm):
    script = "trap 'echo warned' USR1; echo ready; while true; do sleep 1000 & wait; done"
    job = slurm.submit(script, "--time=5", "--signal=B:USR1@60")
    eventually(lambda: "ready\n" in slurm.output(job))
    slurm.expire(job, 3)
    eventually(lambda: "warned\n" in slurm.output(job))
    assert slurm.jobs()[job].state == "RUNNING"
    slurm.wait(job, "TIMEOUT", seconds=60)


def test_a_time_limit_is_told_as_the_reason(slurm):
    with started(2, launcher="slurm") as cluster:
        job = int(cluster.record.job or 0)
        slurm.expire(job)
        with pytest.raises(
            ClusterError, match=f"(?s)died.*Slurm says: job {job} has ended: its ti"
        ):
            cluster.run("import time; time.sleep(60)")


def test_a_fit_goes_on_in_another_job_when_time_is_up_and_ends_with_that_when_cancelled(
    slurm, tmp_path, capsys
):
    with started(2, launcher="slurm", time="10") as cluster:
        job = int(cluster.record.job or 0)
        cell = TRAIN.format(epochs=40).replace("batch_size", "callbacks=[Slow()], batch_size")
        slow = """
import time, keras
class Slow(keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None): time.sleep(0.02)
"""
        kept = {"checkpoint": {"folder": str(tmp_path / "kept"), "every_s": 600}}
        fit = cluster.fit(slow + cell, kept, restarts=1)
        eventually(lambda: len(fit.history.get("loss", [])) > 1)
        # What Slurm sends before a time limit, as the script asks for.
        slurm.run(["scancel", "--batch", "--signal=USR1", str(job)], check=True)
        fit.wait(300)
        assert len(fit.history["loss"]) == 40 and runs(fit.frames)[-1][0]["epoch"] > 1
        assert int(cluster.record.job or 0) == job + 1
        assert f"in job {job + 1}, from the last checkpoint (1 of at most 1)" in (
            capsys.readouterr().out
        )
        assert slurm.jobs()[job].state == "COMPLETED"

        fit = cluster.fit(TRAIN.format(epochs=100_000), {})
        eventually(lambda: fit.frames)
        slurm.cancel(job + 1)
        why = f"(?s)died.*Slurm says: job {job + 1} has ended: it was cancelled"
        with pytest.raises(ClusterError, match=why):
            fit.wait(300)


def test_a_killed_owner_leaves_no_job(slurm):
    owns = """
import sys
from tnt_notebook.cluster import Cluster
cluster = Cluster(2, launcher="slurm", keep=0)
print(cluster.id, cluster.record.job, flush=True)
sys.stdin.read()
"""
    with program(owns) as owner:
        cluster_id, job = owner.stdout.readline().split()
    eventually(lambda: slurm.jobs()[int(job)].state == "COMPLETED")
    eventually(lambda: not processes_of(cluster_id) and not left())


NOTEBOOK = """
import os, signal, sys, time
from tnt_notebook.cluster import Cluster
from tnt_notebook.errors import ClusterError

how = sys.argv[1]
job = {"launcher": "slurm", "nodes": 2, "per_node": 2 if how == "killed" else 1}
cluster = Cluster(**({} if how == "allocation" else job))
try:
    cluster.run("import tempfile; kept = tempfile.mkdtemp()")
    print(cluster.ranks, cluster.record.job, cluster.folder.segments, flush=True)
    sys.stdin.readline()
    if how == "killed":
        try:
            daemon = "psutil.Process().parent().parent()"  # of MPI, above the rank's nanny
            cluster.run(f"import os, psutil; {daemon}.kill(); os.kill(os.getpid(), 9)", [1])
        except ClusterError as error:
            print(error, flush=True)
        ended = cluster.folder.ended(1)
        while not ended.exists():
            time.sleep(0.1)
finally:
    cluster.stop()
"""


@needed
def test_nothing_stays_on_any_node(tmp_path):
    with hosts(3) as rack, slurm_on(rack) as slurm:

        def on_nodes() -> list[Path]:
            memory = [Path(f"/proc/{host.pid}/root/dev/shm") for host in rack[1:]]
            return [*itertools.chain(*(path.iterdir() for path in memory)),
                    *slurm.folder.glob("tmp/*/*")]  # fmt: skip

        for how in ("scancel", "stop", "killed", "allocation"):
            command = [sys.executable, "-c", NOTEBOOK, how]
            if how == "allocation":
                command = ["salloc", "--nodes=2", "--ntasks=2", *command]
            notebook = rack[0].popen(
                command, cwd=ROOT, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                env={**os.environ, **slurm.environment, "TNT_RUN_DIR": str(tmp_path)},
            )  # fmt: skip
            try:
                ranks, job, segments = notebook.stdout.readline().split()
                here = [path for path in on_nodes() if path.name == Path(segments).name]
                assert ranks == ("4" if how == "killed" else "2")
                assert (job == "None") == (how == "allocation")  # where there is one, it is used
                assert here == on_nodes() and len(here) == 4
                if how == "scancel":  # it lets nobody clean up on other nodes
                    slurm.cancel(max(slurm.jobs()))
                said, _ = notebook.communicate("\n", timeout=180)
                assert notebook.returncode == 0
                assert ("died" in said) == (how == "killed"), said
            finally:
                notebook.kill()
                notebook.communicate()
            assert list(tmp_path.iterdir()) == []
            if how == "scancel":  # the next ranks do, after a while
                for path in on_nodes():
                    os.utime(path, (0, 0))
            else:
                assert on_nodes() == [], how
