"""The Slurm that other tests stand on; they fail, too, where it is not what it should be."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from tests.support import slurm_daemons
from tests.support.rank_pool import ROOT, mpiexec, rank_environment
from tests.support.slurm import Slurm, SlurmError, pmix_unavailable, slurm_here, unavailable
from tests.support.waiting import eventually
from tnt_notebook.cluster.ports import open_mpi_ports

pytestmark = pytest.mark.thorough

NEEDS_PMIX = pytest.mark.skipif(bool(pmix_unavailable()), reason=pmix_unavailable())

WORLD = """
import os
from mpi4py import MPI
seen = MPI.COMM_WORLD.allgather((os.environ["SLURMD_NODENAME"], os.environ["SAID"]))
print(*sorted(seen), flush=True)
"""


def test_a_job_runs_on_two_nodes_each_with_its_own_folder_for_temporary_files(slurm: Slurm) -> None:
    script = "srun sh -c 'echo $SLURMD_NODENAME $TMPDIR'"
    job = slurm.submit(script, "-N2", "--ntasks-per-node=1")
    slurm.wait(job, "COMPLETED")
    lines = [f"{node} {slurm.folder}/tmp/{node}" for node in slurm.nodes]
    assert sorted(slurm.output(job).splitlines()) == lines


@pytest.mark.parametrize("starter", ["mpiexec", pytest.param("srun --mpi=pmix", marks=NEEDS_PMIX)])
def test_mpi_ranks_in_an_allocation_of_two_nodes_are_one_world(slurm: Slurm, starter: str) -> None:
    program = slurm.folder / "world.py"
    program.write_text(WORLD)
    words = starter.replace("mpiexec", mpiexec(2)[0])
    # Not one port for all daemons: two of them are on this machine.
    environment = {k: v for k, v in rank_environment().items() if k not in open_mpi_ports()}
    script = f"export SAID=hello\n{words} -n 2 {sys.executable} {program}"
    job = slurm.submit(script, "-N2", "--ntasks-per-node=1", env=environment)
    slurm.wait(job, "COMPLETED", "FAILED", seconds=60)
    seen = " ".join(str((node, "hello")) for node in slurm.nodes)
    assert slurm.output(job).splitlines() == [seen] * 2


def test_other_programs_find_it_by_its_environment(here: Slurm) -> None:
    environment = {**os.environ, **here.environment}
    look = ["sinfo", "--noheader", "-o", "%P %D"]
    run = subprocess.run(look, env=environment, capture_output=True, text=True, check=True)
    assert run.stdout.split() == ["main*", "2", "short", "2"]


def test_a_job_waits_while_others_have_the_nodes_and_says_why(here: Slurm) -> None:
    first = here.submit("sleep 1000", "-N2", "--exclusive", "--time=5")
    here.wait(first, "RUNNING")
    second = here.submit("true")
    eventually(lambda: here.jobs()[second].reason == "Resources")
    assert here.jobs()[second].state == "PENDING"
    assert re.fullmatch(r"[45]:\d\d", here.jobs()[first].left)
    here.cancel(first)
    here.wait(first, "CANCELLED")
    here.wait(second, "COMPLETED")


def test_no_job_starts_on_a_drained_node(over_hosts: Slurm) -> None:
    node = over_hosts.nodes[1]
    over_hosts.drain(node, "broken fan")
    assert over_hosts.node(node) == "drained"
    job = over_hosts.submit("hostname", f"--nodelist={node}")
    eventually(lambda: "ReqNodeNotAvail" in over_hosts.jobs()[job].reason)
    over_hosts.resume(node)
    over_hosts.wait(job, "COMPLETED")
    assert over_hosts.output(job) == f"{node}\n"


def test_gpus_are_given_to_one_job_each(over_hosts: Slurm) -> None:
    script = "echo $CUDA_VISIBLE_DEVICES; sleep 1000"
    options = (f"--nodelist={over_hosts.nodes[0]}", "--gpus-per-node=1", "--mem=100")
    jobs = [over_hosts.submit(script, *options) for _ in range(2)]
    for job in jobs:
        over_hosts.wait(job, "RUNNING")
    eventually(lambda: sorted(map(over_hosts.output, jobs)) == ["0\n", "1\n"])
    over_hosts.cancel(*jobs)
    with pytest.raises(SlurmError, match="Requested node configuration is not available"):
        over_hosts.submit(script, "--gpus-per-node=3")


def test_a_job_is_warned_before_its_time_limit_and_ended_at_it(here: Slurm) -> None:
    script = "trap 'echo warned' USR1; touch ready; while true; do sleep 1000 & wait; done"
    job = here.submit(script, "--time=5", "--signal=B:USR1@60")
    eventually((here.folder / "ready").exists)
    bound = time.monotonic() + here.expire(job, 3)
    eventually(lambda: "warned\n" in here.output(job))
    assert here.jobs()[job].state == "RUNNING"
    here.wait(job, "TIMEOUT", seconds=bound - time.monotonic())
    assert here.job(job)["Reason"] == "TimeLimit"
    assert "DUE TO TIME LIMIT" in here.output(job)


def test_a_job_that_is_queued_again_keeps_its_number(here: Slurm) -> None:
    job = here.submit(
        "test ${SLURM_RESTART_COUNT:-0} = 1 || scontrol requeue $SLURM_JOB_ID; sleep 9"
    )
    eventually(lambda: here.job(job)["Restarts"] == "1")
    here.wait(job, "PENDING")
    here.start_soon(job)
    here.wait(job, "RUNNING")
    here.cancel(job)


def test_how_a_job_ended_is_known_afterwards(here: Slurm) -> None:
    jobs = {body: here.submit(body) for body in ("true", "exit 3", "kill -KILL $$")}
    ends = {}
    for body, job in jobs.items():
        here.wait(job, "COMPLETED", "FAILED")
        ends[body] = (here.job(job)["JobState"], here.job(job)["ExitCode"])
    assert ends == {
        "true": ("COMPLETED", "0:0"),
        "exit 3": ("FAILED", "3:0"),
        "kill -KILL $$": ("FAILED", "0:9"),
    }
    with pytest.raises(SlurmError, match="Invalid job id specified"):
        here.job(99999)


@pytest.mark.skipif(bool(unavailable()), reason=unavailable())
@pytest.mark.parametrize("groups", ["as allowed", "none"])
def test_what_a_job_has_detached_ends_with_it(groups: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if groups == "none":
        monkeypatch.setattr(slurm_daemons, "_FREEZER", Path("/nowhere"))
    others = set(psutil.Process().children(recursive=True))
    with slurm_here(nodes=1) as slurm:
        job = slurm.submit("(setsid sh -c 'echo $$; exec sleep 1000' &); sleep 1000")
        slurm.wait(job, "RUNNING")
        eventually(lambda: slurm.output(job).strip())
        detached = psutil.Process(int(slurm.output(job)))
        slurm.cancel(job)
        detached.wait(15)
        slurm.wait(job, "CANCELLED")
        daemons = set(psutil.Process().children(recursive=True)) - others
        assert len(daemons) >= 4
    assert not any(daemon.is_running() for daemon in daemons) and not slurm.folder.exists()


HOLD = """
import contextlib, sys
from tests.support.hosts import hosts
from tests.support.slurm import slurm_here, slurm_on
from tests.support.waiting import eventually
program = '''
import mmap, os, time
file = os.open("/dev/shm/FOLDER", os.O_RDWR | os.O_CREAT)
os.ftruncate(file, 1 << 20)
memory = mmap.mmap(file, 1 << 20)
print(os.getpid(), flush=True)
time.sleep(1000)
'''
with contextlib.ExitStack() as stack:
    if sys.argv[1] == "here":
        slurm = stack.enter_context(slurm_here())
    else:
        slurm = stack.enter_context(slurm_on(stack.enter_context(hosts(2))))
    program = program.replace("FOLDER", slurm.folder.name)
    job = slurm.submit(f"(setsid sleep 1000 &)\\nsrun {sys.executable} -c '\\n{program}'")
    slurm.wait(job, "RUNNING")
    eventually(lambda: slurm.output(job))
    print(slurm.folder, flush=True)
    sys.stdin.read()
"""


@pytest.mark.parametrize("place", ["here", "over hosts"])
def test_nothing_is_left_when_its_owner_is_killed(here: Slurm, place: str) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, place],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as holder:
        assert holder.stdout is not None
        folder = Path(holder.stdout.readline().strip())
        started = psutil.Process(holder.pid).children(recursive=True)
        names = [process.name() for process in started]
        daemons = {"munged", "slurmctld", "slurmd", "slurmstepd", "sleep"}
        assert daemons <= set(names) and folder.exists()
        assert Path("/dev/shm", folder.name).exists() == (place == "here")  # hosts have their own
        holder.kill()
        holder.wait(30)
    _, alive = psutil.wait_procs(started, timeout=15)
    assert not alive
    eventually(lambda: not folder.exists())
    assert not list(Path("/sys/fs/cgroup").glob(f"*/{folder.name}"))
    assert not Path("/dev/shm", folder.name).exists()
    assert [here.node(node) for node in here.nodes] == ["idle"] * 2  # the one beside it lives on
