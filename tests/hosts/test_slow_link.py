"""A slow link between hosts is named: on emulated hosts, over real TCP."""

import sys

from tests.support.hosts import hosts, needed
from tests.support.rank_pool import ROOT, rank_environment

pytestmark = needed


SENTENCES = {
    "replicas": "the link between hosts is slow, a rank sends ",
    "pipeline": "for messages that are on their way from rank ",
}


def test_a_slow_link_is_named():
    with hosts(2, rate="100mbit", delay_us=100) as rack:
        run = rack[0].run(
            [*rack.mpiexec(ranks_per_host=1), sys.executable, "-m", "tests.hosts.slow_link"],
            cwd=ROOT,
            env=rank_environment(),
            capture_output=True,
            text=True,
            timeout=200,
        )
    assert run.returncode == 0, run.stderr
    told = [line.split(" ", 3)[1:] for line in run.stdout.splitlines() if line[:5] == "LIMIT"]
    assert [how for how, _, _ in told] == list(SENTENCES)
    for how, error, limit in told:
        assert SENTENCES[how] in limit
        # Two hosts, two clocks; here they are one, and a round trip takes at least twice the delay.
        assert 90e-6 < float(error) < 0.1
