"""A Slurm on this machine, and one over emulated hosts."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.hosts import hosts
from tests.support.hosts import unavailable as hosts_unavailable
from tests.support.slurm import Slurm, slurm_here, slurm_on, unavailable


@pytest.fixture(scope="module")
def here() -> Iterator[Slurm]:
    """Two nodes of 4 cores, which are this machine."""
    _need(unavailable())
    with slurm_here(nodes=2, cpus=4) as slurm:
        yield slurm


@pytest.fixture(scope="module")
def over_hosts() -> Iterator[Slurm]:
    """A login node and two nodes of 4 cores and 2 GPUs: node1, and node2 and node3."""
    _need(unavailable())
    _need(f"this machine does not allow it: {hosts_unavailable()}" if hosts_unavailable() else "")
    with hosts(3) as rack, slurm_on(rack, cpus=4, gpus=2) as slurm:
        yield slurm


@pytest.fixture(params=["here", "over_hosts"])
def slurm(request: pytest.FixtureRequest) -> Slurm:
    """One after the other."""
    return request.getfixturevalue(request.param)


def _need(problem: str) -> None:
    if problem:
        pytest.skip(problem)
