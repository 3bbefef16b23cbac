"""A user's server as a job of a real Slurm, and ranks in that job and in one of their own."""

from collections.abc import Iterator
from contextlib import closing

import pytest

from tests.hub.desk import desk, expect, left
from tests.support import hub as jupyterhub
from tests.support.hub import Hub
from tests.support.shared_host import SharedHost
from tests.support.slurm import Slurm, slurm_here, unavailable
from tests.support.waiting import eventually

pytestmark = pytest.mark.browser

LOAD, START, JOB, STOP, OWN = range(5)
CELLS = ("%load_ext tnt_notebook", "%tnt_cluster start",
         '%%tnt\nimport os\nprint("in job", os.environ.get("SLURM_JOB_ID"))', "%tnt_cluster stop",
         "%tnt_cluster start --launcher slurm -n 2")  # fmt: skip
#: As docs/centres/jupyterhub.md has it, but for the address of the nodes: all are this machine.
CONFIGURATION = '''
import batchspawner
c.JupyterHub.spawner_class = "batchspawner.SlurmSpawner"
c.SlurmSpawner.exec_prefix = "runuser -u {username} --"
c.SlurmSpawner.req_options = "--ntasks=2"
c.SlurmSpawner.state_exechost_exp = "127.0.0.1"
c.SlurmSpawner.batch_script = """#!/bin/bash
#SBATCH --job-name=jupyter
#SBATCH --output={{homedir}}/jupyter-%j.log
#SBATCH --chdir={{homedir}}
#SBATCH --export={{keepvars}}
#SBATCH {{options}}
{{cmd}} &
server=$!
trap 'kill $server' TERM
wait $server
wait $server
for _ in $(seq 50); do
  pgrep -u "$USER" -f tnt_notebook/warden/ || break
  sleep 0.2
done
"""
'''


@pytest.fixture(scope="module")
def slurm(host: SharedHost) -> Iterator[Slurm]:
    if problem := unavailable() or jupyterhub.unavailable():
        pytest.skip(problem)
    with slurm_here(nodes=1, shared=host) as slurm:
        # As long as by Slurm's default has a server to end its kernels.
        file = slurm.folder / "slurm.conf"
        file.write_text(file.read_text().replace("KillWait=3\n", "KillWait=30\n"))
        slurm.run(["scontrol", "reconfigure"], check=True)
        yield slurm


@pytest.fixture(scope="module")
def hub_of_jobs(host: SharedHost, slurm: Slurm) -> Iterator[Hub]:
    with closing(Hub(host, CONFIGURATION, slurm.environment)) as hub:
        yield hub


def running(slurm: Slurm) -> list[str]:
    return sorted(job.name for job in slurm.jobs().values() if job.state == "RUNNING")


def test_ranks_in_the_job_of_the_server_and_in_their_own(slurm, hub_of_jobs, browser):
    with desk(hub_of_jobs, browser, "alice", CELLS) as notebook:
        assert running(slurm) == ["jupyter"]
        (server,) = slurm.jobs()
        notebook.run_and_wait(LOAD)
        notebook.run_and_wait(START, 90)
        expect(notebook.outputs(START)).to_contain_text("2 ranks are ready")
        notebook.run_and_wait(JOB)
        expect(notebook.outputs(JOB)).to_contain_text(f"ranks 0-1: in job {server}")
        notebook.run_and_wait(STOP)

        notebook.run_and_wait(OWN, 90)
        expect(notebook.outputs(OWN)).to_contain_text(f"2 ranks are ready: job {server + 1} on")
        assert len(running(slurm)) == 2
        notebook.run_and_wait(JOB)
        expect(notebook.outputs(JOB)).to_contain_text(f"ranks 0-1: in job {server + 1}")
    hub_of_jobs.stop_server("alice")
    eventually(lambda: running(slurm) == [])
    eventually(lambda: left(hub_of_jobs, "alice") == [])
    assert not list(hub_of_jobs.host.home("alice").glob(".local/share/tnt_notebook/clusters/*"))
