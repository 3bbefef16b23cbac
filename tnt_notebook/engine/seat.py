"""Which rank this process is, told by the environment of whatever launched it.

Read before MPI is initialised: cores and GPUs must be settled before any library looks at them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tnt_notebook.errors import ClusterError

# Per launcher: rank, size, local rank, local size. Open MPI first: mpiexec inside a Slurm job sees
# SLURM_* too, and those describe the batch step.
_LAUNCHERS = (
    (
        ("OMPI_COMM_WORLD_RANK",), ("OMPI_COMM_WORLD_SIZE",),
        ("OMPI_COMM_WORLD_LOCAL_RANK",), ("OMPI_COMM_WORLD_LOCAL_SIZE",),
    ),
    (
        ("PMI_RANK",), ("PMI_SIZE",), ("MPI_LOCALRANKID", "PMI_LOCAL_RANK", "SLURM_LOCALID"),
        ("MPI_LOCALNRANKS", "PMI_LOCAL_SIZE", "SLURM_STEP_TASKS_PER_NODE"),
    ),
    (
        ("SLURM_PROCID",), ("SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"), ("SLURM_LOCALID",),
        ("SLURM_STEP_TASKS_PER_NODE", "SLURM_NTASKS_PER_NODE"),
    ),
)  # fmt: skip


@dataclass(frozen=True)
class Seat:
    """A rank's place: in the world, and among the ranks of its host."""

    rank: int
    size: int
    local_rank: int
    local_size: int


def seat(environment: Mapping[str, str]) -> Seat:
    """Reads the seat of this process from the launcher's variables.

    Raises:
        ClusterError: no known launcher started this process.
    """
    for names in _LAUNCHERS:
        rank, size, local_rank, local_size = (_number(environment, of) for of in names)
        if rank is not None and size is not None:
            return Seat(
                rank,
                size,
                rank if local_rank is None else local_rank,
                size if local_size is None else local_size,
            )
    raise ClusterError(
        "This engine was not started by an MPI launcher (none of OMPI_COMM_WORLD_RANK, PMI_RANK, "
        "SLURM_PROCID is set). Start engines with %tnt_cluster start."
    )


def _number(environment: Mapping[str, str], names: tuple[str, ...]) -> int | None:
    for name in names:
        # Slurm writes "4(x2),3" for tasks per node: the first count is the one of the first nodes.
        digits = environment.get(name, "").split("(")[0].split(",")[0]
        if digits.isdigit():
            return int(digits)
    return None
