"""A Slurm on this machine."""

from collections.abc import Iterator

import pytest

from tests.support.slurm import Slurm, slurm_here, unavailable


@pytest.fixture(scope="package")
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Slurm]:
    """Two nodes of 4 cores, which are this machine; clusters use it, in a folder of these tests."""
    if problem := unavailable():
        pytest.skip(problem)
    with slurm_here() as slurm, pytest.MonkeyPatch.context() as patch:
        folder = tmp_path_factory.mktemp("clusters")
        for name, value in {**slurm.environment, "TNT_RUN_DIR": str(folder)}.items():
            patch.setenv(name, value)
        yield slurm
