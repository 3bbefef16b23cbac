"""A slow link between hosts is named: on emulated hosts, over real TCP."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest

from tests.support.hosts import Rack, hosts, unavailable
from tests.support.rank_pool import ROOT, rank_environment

pytestmark = pytest.mark.skipif(
    bool(unavailable()), reason=f"this machine does not allow it: {unavailable()}"
)


@pytest.fixture(scope="module")
def rack() -> Iterator[Rack]:
    with hosts(2, rate="100mbit", delay_us=100) as rack:
        yield rack


@pytest.mark.parametrize(
    ("how", "sentence"),
    [
        ("pipeline", "for messages that are on their way from rank "),
        ("replicas", "the link between hosts is slow, a rank sends "),
    ],
)
def test_a_slow_link_is_named(rack: Rack, how: str, sentence: str) -> None:
    run = rack[0].run(
        [*rack.mpiexec(ranks_per_host=1), sys.executable, "-m", "tests.hosts.slow_link", how],
        cwd=ROOT,
        env=rank_environment(),
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert run.returncode == 0, run.stderr
    told = dict(line.split(" ", 1) for line in run.stdout.splitlines() if line[:5].isupper())
    assert sentence in told["LIMIT"]
    # Two hosts, two clocks; here they are one, and a round trip takes at least twice the delay.
    assert 90e-6 < float(told["ERROR"]) < 0.1
