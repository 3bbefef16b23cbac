"""Rank and size as the launchers tell them."""

import pytest

from tnt_notebook.engine.placement import Seat, seat
from tnt_notebook.errors import ClusterError

OPEN_MPI = {
    "OMPI_COMM_WORLD_RANK": "5",
    "OMPI_COMM_WORLD_SIZE": "8",
    "OMPI_COMM_WORLD_LOCAL_RANK": "1",
    "OMPI_COMM_WORLD_LOCAL_SIZE": "4",
}
MPICH = {"PMI_RANK": "5", "PMI_SIZE": "8", "MPI_LOCALRANKID": "1", "MPI_LOCALNRANKS": "4"}
SRUN = {
    "SLURM_PROCID": "5",
    "SLURM_STEP_NUM_TASKS": "8",
    "SLURM_LOCALID": "1",
    "SLURM_STEP_TASKS_PER_NODE": "4(x2)",
}


@pytest.mark.parametrize("environment", [OPEN_MPI, MPICH, SRUN], ids=["openmpi", "mpich", "srun"])
def test_a_launcher_tells_the_seat(environment: dict[str, str]) -> None:
    assert seat(environment) == Seat(rank=5, size=8, local_rank=1, local_size=4)


def test_mpiexec_inside_a_batch_job_counts_more_than_the_batch_step() -> None:
    batch = {"SLURM_PROCID": "0", "SLURM_NTASKS": "1", "SLURM_LOCALID": "0"}
    assert seat(OPEN_MPI | batch).rank == 5


def test_without_local_numbers_all_ranks_are_on_one_host() -> None:
    assert seat({"PMI_RANK": "1", "PMI_SIZE": "2"}) == Seat(1, 2, 1, 2)


def test_without_a_launcher_the_error_says_what_to_do() -> None:
    with pytest.raises(ClusterError, match="tnt_cluster start"):
        seat({})
