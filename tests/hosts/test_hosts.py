"""The emulated hosts that tests and benchmarks stand on: tests fail, too, where they are wrong."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.goodput import measured
from tests.support.hosts import Rack, hosts, needed
from tests.support.waiting import eventually

pytestmark = [pytest.mark.thorough, needed]


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


def test_hosts_share_files_but_not_memory_nor_processes(rack):
    (rack.folder / "note").write_text("for all")
    for number in (0, 1):
        assert output(rack, number, "cat", str(rack.folder / "note")) == "for all"
        assert output(rack, number, "sh", "-c", "ls /dev/shm") == ""
        assert len(output(rack, number, "sh", "-c", "echo /proc/[0-9]*").split()) <= 3
    output(rack, 0, "touch", "/dev/shm/mine")
    assert output(rack, 1, "ls", "/dev/shm") == ""
    output(rack, 0, "rm", "/dev/shm/mine")


def test_status_and_streams_of_a_command_on_another_host(rack):
    command = [str(rack.agent), "node2", "read x; echo out $x; echo err >&2; exit 7"]
    run = rack[0].run(command, input="in", capture_output=True, text=True, timeout=60)
    assert (run.returncode, run.stdout, run.stderr) == (7, "out in\n", "err\n")


@pytest.mark.parametrize("delay_us", [100, 0])
def test_the_rate_is_limited_and_there_is_a_delay(delay_us):
    with hosts(2, rate="200mbit", delay_us=delay_us) as rack:
        link = measured(rack[0], rack[1])
        assert link.bits_per_second == pytest.approx(200e6, rel=0.25)
        assert link.round_trip_s > 2e-6 * rack.delay_us


def test_what_a_killed_command_has_started_ends(rack):
    program = rack[0].popen(["sleep", "1000"])
    look = ("sh", "-c", "cat /proc/[0-9]*/comm 2>/dev/null; true")
    eventually(lambda: "sleep" in output(rack, 0, *look))
    program.kill()
    program.wait()
    eventually(lambda: "sleep" not in output(rack, 0, *look))
