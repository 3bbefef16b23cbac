"""The emulated hosts that tests and benchmarks stand on: tests fail, too, where they are wrong."""

import pytest

from tests.support.goodput import measured
from tests.support.hosts import hosts, needed

pytestmark = [pytest.mark.thorough, needed]


def test_hosts_share_files_and_start_commands_but_share_no_memory_and_no_processes():
    with hosts(2) as rack:

        def output(number: int, command: str) -> str:
            options = {"capture_output": True, "text": True, "timeout": 60, "check": True}
            return rack[number].run(["sh", "-c", command], **options).stdout.strip()

        (rack.folder / "note").write_text("for all")
        for number in (0, 1):
            assert output(number, f"cat {rack.folder}/note") == "for all"
            assert output(number, "ls /dev/shm") == ""
            assert len(output(number, "echo /proc/[0-9]*").split()) <= 3
        output(0, "touch /dev/shm/mine")
        assert output(1, "ls /dev/shm") == ""

        command = [str(rack.agent), "node2", "read x; echo out $x; echo err >&2; exit 7"]
        run = rack[0].run(command, input="in", capture_output=True, text=True, timeout=180)
        assert (run.returncode, run.stdout, run.stderr) == (7, "out in\n", "err\n")


@pytest.mark.parametrize("delay_us", [100, 0])
def test_the_rate_is_limited_and_there_is_a_delay(delay_us):
    with hosts(2, rate="200mbit", delay_us=delay_us) as rack:
        link = measured(rack[0], rack[1])
        assert link.bits_per_second == pytest.approx(200e6, rel=0.25)
        assert link.round_trip_s > 2e-6 * rack.delay_us
