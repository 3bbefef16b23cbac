"""Which cores and which GPU a rank gets, and the environment that makes libraries keep to them.

The ranks of a host share its cores in contiguous blocks (hyper-threads of one core, and cores of
one socket, stay together)::

    cores  0 1 2 3 4 5 6 7          8 cores, 3 ranks
    ranks  0 0 0 1 1 2 2 2  ->      blocks of 3, 2 and 3 (never more than one apart)
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

_CPUS = Path("/sys/devices/system/cpu")


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
