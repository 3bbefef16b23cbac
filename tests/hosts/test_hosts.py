"""The emulated hosts that tests and benchmarks stand on: tests fail, too, where they are wrong."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.support.goodput import measured
from tests.support.hosts import Rack, hosts, unavailable
from tests.support.rank_pool import ROOT, rank_environment
from tests.support.waiting import eventually

pytestmark = [
    pytest.mark.thorough,
    pytest.mark.skipif(
        bool(unavailable()), reason=f"this machine does not allow it: {unavailable()}"
    ),
]


@pytest.fixture(scope="module")
def rack() -> Iterator[Rack]:
    """Two hosts with the links that benchmarks use."""
    with hosts(2, rate="1gbit", delay_us=100) as rack:
        yield rack


def output(rack: Rack, number: int, *command: str) -> str:
    """What a command prints on a host."""
    run = rack[number].run(command, capture_output=True, text=True, timeout=60)
    assert run.returncode == 0, run.stderr
    return run.stdout.strip()


def test_hosts_know_and_reach_each_other_by_name(rack: Rack) -> None:
    for here, there in ((0, "node2"), (1, "node1")):
        assert output(rack, here, "hostname") != there
        assert output(rack, here, str(rack.agent), "-x", there, "hostname") == there
        assert output(rack, here, "getent", "hosts", there).split() == [
            rack[1 - here].address,
            there,
        ]


def test_hosts_share_files_but_not_memory_nor_processes(rack: Rack) -> None:
    (rack.folder / "note").write_text("for all")
    for number in (0, 1):
        assert output(rack, number, "cat", str(rack.folder / "note")) == "for all"
        assert output(rack, number, "sh", "-c", "ls /dev/shm") == ""
        assert len(output(rack, number, "sh", "-c", "echo /proc/[0-9]*").split()) <= 3
    output(rack, 0, "touch", "/dev/shm/mine")
    assert output(rack, 1, "ls", "/dev/shm") == ""
    output(rack, 0, "rm", "/dev/shm/mine")


def test_status_and_streams_of_a_command_on_another_host(rack: Rack) -> None:
    command = [str(rack.agent), "node2", "read x; echo out $x; echo err >&2; exit 7"]
    run = rack[0].run(command, input="in", capture_output=True, text=True, timeout=60)
    assert (run.returncode, run.stdout, run.stderr) == (7, "out in\n", "err\n")


@pytest.mark.parametrize("delay_us", [100, 0])
def test_the_rate_is_limited_and_there_is_a_delay(delay_us: int) -> None:
    with hosts(2, rate="200mbit", delay_us=delay_us) as rack:
        link = measured(rack[0], rack[1])
        assert link.bits_per_second == pytest.approx(200e6, rel=0.25)
        assert link.round_trip_s > 2e-6 * rack.delay_us


def test_mpi_ranks_over_two_hosts_are_one_world(rack: Rack) -> None:
    program = (
        "import socket\n"
        "from mpi4py import MPI\n"
        "print(MPI.COMM_WORLD.allgather(socket.gethostname()), flush=True)"
    )
    command = [*rack.mpiexec(ranks_per_host=2), sys.executable, "-c", program]
    run = rack[0].run(command, env=rank_environment(), capture_output=True, text=True, timeout=60)
    assert run.stdout.splitlines() == [str(["node1"] * 2 + ["node2"] * 2)] * 4, run.stderr


def test_a_host_that_crashes_takes_its_processes_along() -> None:
    with hosts(2) as rack:
        program = rack[1].popen(["sleep", "1000"])
        rack[1].crash()
        assert program.wait(10) != 0
        assert output(rack, 0, "hostname") == "node1"


def test_what_a_killed_command_has_started_ends(rack: Rack) -> None:
    program = rack[0].popen(["sleep", "1000"])
    look = ("sh", "-c", "cat /proc/[0-9]*/comm 2>/dev/null; true")
    eventually(lambda: "sleep" in output(rack, 0, *look))
    program.kill()
    program.wait()
    eventually(lambda: "sleep" not in output(rack, 0, *look))


def test_orphans_on_a_host_are_reaped(rack: Rack) -> None:
    output(rack, 0, "sh", "-c", "(true &) ; (sh -c 'sleep 0 & exec true' &) ; true")
    states = ("sh", "-c", "cut -d' ' -f3 /proc/[0-9]*/stat 2>/dev/null; true")
    eventually(lambda: "Z" not in output(rack, 0, *states))


_HOLD_HOSTS = """
import sys, tests.support.hosts as support
with support.hosts(2, delay_us=int(sys.argv[1])) as rack:
    program = rack[1].popen(["sh", "-c", "echo up; exec sleep 1000"], stdout=-1)
    program.stdout.readline()
    print(rack.folder, flush=True)
    sys.stdin.read()
"""


@pytest.mark.parametrize("delay_us", [100, 0])
@pytest.mark.parametrize("end", ["exit", "SIGKILL"])
def test_nothing_is_left(end: str, delay_us: int) -> None:
    interfaces = set(os.listdir("/sys/class/net"))
    with subprocess.Popen(
        [sys.executable, "-c", _HOLD_HOSTS, str(delay_us)],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as holder:
        assert holder.stdin is not None and holder.stdout is not None
        folder = Path(holder.stdout.readline().strip())
        assert folder.exists() and set(os.listdir("/sys/class/net")) == interfaces
        started = psutil.Process(holder.pid).children(recursive=True)
        assert len(started) >= 4  # of each host a first process and its parent, and the program
        if end == "exit":
            holder.stdin.close()
        else:
            holder.send_signal(signal.SIGKILL)
        holder.wait(30)
    _, alive = psutil.wait_procs(started, timeout=10)
    assert not alive
    eventually(lambda: not folder.exists())
    assert set(os.listdir("/sys/class/net")) == interfaces
