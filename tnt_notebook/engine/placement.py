"""Which rank this process is, told by the environment of whatever launched it; which cores and
which GPU it gets, and the environment that makes libraries keep to them.

All is settled before MPI is initialised, and before any library looks at cores or GPUs.

The ranks of a host share its cores in contiguous blocks (hyper-threads of one core, and cores of
one socket, stay together)::

    cores  0 1 2 3 4 5 6 7          8 cores, 3 ranks
    ranks  0 0 0 1 1 2 2 2  ->      blocks of 3, 2 and 3 (never more than one apart)
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tnt_notebook.errors import ClusterError

_CPUS = Path("/sys/devices/system/cpu")

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


def cores_of(
    local_rank: int, local_size: int, cores: Sequence[int], per_rank: int | None = None
) -> tuple[int, ...]:
    """The cores of one rank among the ranks of its host.

    Args:
        local_rank: the rank's index on its host.
        local_size: ranks on that host.
        cores: the cores this job may use there, neighbours side by side.
        per_rank: cores each rank gets; all cores shared evenly when None.

    Returns:
        At least one core. Where ranks ask for more cores than there are, they share round robin.
    """
    n = len(cores)
    if per_rank is not None:
        first = local_rank * per_rank
        return tuple(dict.fromkeys(cores[(first + i) % n] for i in range(per_rank)))
    if local_size > n:
        return (cores[local_rank % n],)
    return tuple(cores[local_rank * n // local_size : (local_rank + 1) * n // local_size])


def gpu_of(local_rank: int, gpus: int | None, visible: str | None) -> str | None:
    """The value of ``CUDA_VISIBLE_DEVICES`` for one rank; None leaves the environment alone.

    Args:
        local_rank: the rank's index on its host.
        gpus: GPUs per host to share; 0 hides them all, None means nobody asked.
        visible: ``CUDA_VISIBLE_DEVICES`` as a batch system or person has set it.
    """
    if gpus is None:
        return None
    if gpus == 0:
        return "-1"
    devices = [name.strip() for name in (visible or "").split(",") if name.strip()]
    index = local_rank % gpus
    return devices[index] if index < len(devices) else str(index)


def gpu_count(root: Path = Path("/")) -> int | None:
    """How many GPUs of NVIDIA this host, or container, has; None where only its driver knows.

    Args:
        root: of the file system.
    """
    if (root / "dev/dxg").exists():  # Linux in Windows
        return None
    devices = len(list((root / "dev").glob("nvidia[0-9]*")))
    return devices or len(list((root / "proc/driver/nvidia/gpus").glob("*")))


def thread_environment(cores: int) -> dict[str, str]:
    """Sizes the thread pools of TensorFlow and OpenMP to a rank's cores."""
    return {
        "OMP_NUM_THREADS": str(cores),
        "TF_NUM_INTRAOP_THREADS": str(cores),
        # One inter-op thread would let a single blocking op (py_function) stop the whole graph.
        "TF_NUM_INTEROP_THREADS": str(max(2, cores)),
    }


def by_neighbourhood(cores: Iterable[int], cpus: Path = _CPUS) -> list[int]:
    """Sorts cores so that neighbours (same socket, same physical core) stand side by side."""
    return sorted(cores, key=lambda cpu: (*_position(cpu, cpus), cpu))


def _position(cpu: int, cpus: Path) -> tuple[int, int]:
    topology = cpus / f"cpu{cpu}" / "topology"
    try:
        package = int((topology / "physical_package_id").read_text())
        core = int((topology / "core_id").read_text())
    except (OSError, ValueError):  # a container may hide the topology: then the number decides
        return 0, cpu
    return package, core
