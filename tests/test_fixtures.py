"""What fixtures have started ends with the process that holds them, however that ends."""

import os
from pathlib import Path

import psutil
import pytest

from tests.support import shared_host, slurm
from tests.support.hosts import needed
from tests.support.program import program
from tests.support.waiting import eventually

#: Each has a program run by what it holds, prints the folder of that, and waits.
HOSTS = """
import sys, tests.support.hosts as support
with support.hosts(2, delay_us={delay_us}) as rack:
    program = rack[1].popen(["sh", "-c", "echo up; exec sleep 1000"], stdout=-1)
    program.stdout.readline()
    print(rack.folder, flush=True)
    sys.stdin.read()
"""
SHARED_HOST = """
import subprocess, sys
from tests.support.shared_host import shared_host
with shared_host("carol") as host:
    sleeper = "setsid sleep 1000 & touch /dev/shm/" + host.folder.name + "; echo begun; wait"
    process = host.popen(["sh", "-c", sleeper], "carol", stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "begun\\n"
    print(host.folder, flush=True)
    sys.stdin.read()
"""
SLURM = """
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
    slurm = stack.enter_context({slurm})
    program = program.replace("FOLDER", slurm.folder.name)
    job = slurm.submit(f"(setsid sleep 1000 &)\\nsrun {{sys.executable}} -c '\\n{{program}}'")
    slurm.wait(job, "RUNNING")
    eventually(lambda: slurm.output(job))
    print(slurm.folder, flush=True)
    sys.stdin.read()
"""
BATCH = """
import subprocess, sys, time
from tests.support.batch import batch
with batch("lsf") as system:
    folder = system.path.partition("/bin")[0]
    script = f"#BSUB -J x\\n#BSUB -n 1\\n#BSUB -o {folder}/out\\nsleep 1234.5 & sleep 1234.5\\n"
    quietly = {"stdout": subprocess.DEVNULL, "check": True}
    subprocess.run([f"{folder}/bin/bsub"], input=script, text=True, **quietly)
    while system.jobs()[0]["state"] != "running":
        time.sleep(0.01)
    print(folder, flush=True)
    sys.stdin.read()
"""


SLURMS = pytest.mark.skipif(bool(slurm.unavailable()), reason=slurm.unavailable())
SHARED = pytest.mark.skipif(bool(shared_host.unavailable()), reason=shared_host.unavailable())
LONG = pytest.mark.thorough
DAEMONS = {"munged", "slurmctld", "slurmd", "slurmstepd", "sleep"}


@pytest.mark.parametrize(
    ("source", "end", "processes"),
    [
        pytest.param(BATCH, "kill", {"bash", "sleep"}),
        *(pytest.param(HOSTS.format(delay_us=delay), end, {"sleep"}, marks=[LONG, needed])
          for delay in (100, 0) for end in ("exit", "kill")),
        pytest.param(SHARED_HOST, "kill", {"sleep"}, marks=[LONG, SHARED]),
        pytest.param(SLURM.format(slurm="slurm_here()"), "kill", DAEMONS, marks=[LONG, SLURMS]),
        pytest.param(SLURM.format(slurm="slurm_on(stack.enter_context(hosts(2)))"), "kill",
                     DAEMONS, marks=[LONG, SLURMS, needed]),
    ],
)  # fmt: skip
def test_nothing_is_left(source, end, processes):
    interfaces = set(os.listdir("/sys/class/net"))
    with program(source) as holder:
        folder = Path(holder.stdout.readline().strip())
        started = eventually(lambda: with_names(psutil.Process(holder.pid), processes))
        assert folder.exists()
        assert set(os.listdir("/sys/class/net")) == interfaces
        if end == "exit":
            holder.stdin.close()
        else:
            holder.kill()
        holder.wait(30)
    _, alive = psutil.wait_procs(started, timeout=15)
    assert not alive
    eventually(lambda: not folder.exists())
    assert not list(Path("/sys/fs/cgroup").glob(f"*/{folder.name}"))
    assert set(os.listdir("/sys/class/net")) == interfaces
    assert not Path("/dev/shm", folder.name).exists()


def with_names(holder: psutil.Process, names: set[str]) -> list[psutil.Process]:
    """All that it has started; nothing, while one of the names is not among them."""
    started = holder.children(recursive=True)
    return started if names <= {process.name() for process in started} else []
