"""What is known of a cluster beside its owner: a file in its folder, read by whoever attaches."""

from __future__ import annotations

import json
import platform
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import psutil

from tnt_notebook import files, warden
from tnt_notebook.cluster.files import lease
from tnt_notebook.cluster.files.folder import RunFolder, known
from tnt_notebook.errors import ClusterError
from tnt_notebook.warden import Plan


@dataclass(frozen=True)
class Record:
    """A cluster, from its start on.

    Attributes:
        id: marks every process.
        ranks: how many.
        launcher: that started them.
        host: where controller and warden run.
        pids: where their process numbers count, see :func:`tnt_notebook.warden.pids_count_in`.
        began: Unix time.
        state: ``starting`` or ``ready``.
        request: what was asked for, as plain data.
        plan: what its warden does at the end.
        controller, engines: pid and begin (Unix time) of the controller and of mpiexec; None where
            a job runs the engines.
        job: of a batch system.
        seats: what each rank said of itself, see ``tnt_notebook.engine.cell.describe``.
        notebook: the kernel that owned it last, the same after a restart; "" outside of one.
        reached: by which address of this host engines reach it, and why that one.
        rounds: how often engines were started in the same job.
    """

    id: str
    ranks: int
    launcher: str
    host: str
    pids: str
    began: float
    request: dict[str, Any]
    plan: Plan
    state: str = "starting"
    controller: tuple[int, float] | None = None
    engines: tuple[int, float] | None = None
    job: str | None = None
    seats: tuple[dict[str, Any], ...] = ()
    notebook: str = ""
    reached: str = ""
    rounds: int = 1

    @property
    def here(self) -> bool:
        """Whether it can be attached to from this host."""
        return self.host == platform.node()


@dataclass(frozen=True)
class Known:
    """A cluster as a list shows it; ``kept`` is what its warden says, None if that has ended."""

    record: Record
    folder: RunFolder
    kept: dict[str, Any] | None = None


def write(record: Record, folder: RunFolder) -> None:
    """Keeps a record."""
    files.replace(folder.record, asdict(record))


def read(folder: RunFolder) -> Record | None:
    """The record in a folder; None where there is none, or none that can be understood."""
    try:
        record: Record = files.typed(Record, json.loads(folder.record.read_bytes()))
        time.localtime(record.began)  # raises where that is no time
        return record
    except (OSError, ValueError, TypeError, KeyError, OverflowError, RecursionError):
        return None


def listed() -> list[Known]:
    """The clusters of this user, the oldest first."""
    found = []
    for folder in known():
        record = read(folder)
        if record is not None:
            kept = lease.status(record.plan) if record.here else None
            found.append(Known(record, folder, kept))
    return sorted(found, key=lambda cluster: cluster.record.began)


def find(text: str | None) -> Known:
    """The cluster that is meant by its id or the beginning of it; without, the one that nobody
    owns: this notebook's, or the only one.

    Raises:
        ClusterError: there is none, or more than one.
    """
    clusters = listed()
    if text is None:
        meant = [c for c in clusters if c.kept is not None and c.kept["owner"] is None]
        own = [c for c in meant if c.record.notebook and c.record.notebook == notebook()]
        meant = own[-1:] or meant
        what = "that nobody owns"
    else:
        meant = [c for c in clusters if c.record.id.startswith(text)]
        what = f"{text!r}"
    if len(meant) == 1:
        return meant[0]
    ids = ", ".join(c.record.id for c in meant or clusters)
    if not meant:
        hint = f" There is: {ids}." if ids else " None is running."
        raise ClusterError(f"There is no cluster {what}.{hint} %tnt_cluster list shows more.")
    raise ClusterError(f"There are {len(meant)} clusters {what}: {ids}. Name one.")


def notebook() -> str:
    """What this kernel is called, also after a restart; "" outside of one."""
    app = sys.modules.get("ipykernel.kernelapp")
    if app is None or not app.IPKernelApp.initialized():
        return ""
    return Path(app.IPKernelApp.instance().connection_file).stem


def process(pid: int) -> tuple[int, float]:
    """A process, so that another one of the same pid is not taken for it."""
    return pid, psutil.Process(pid).create_time()


def runs(known_process: tuple[int, float] | None) -> bool:
    """Whether that very process is alive."""
    if known_process is None:
        return False
    pid, began = known_process
    try:
        found = psutil.Process(pid)
        return abs(found.create_time() - began) < 2.0 and found.status() != psutil.STATUS_ZOMBIE
    except (psutil.NoSuchProcess, ValueError):  # a file may hold a negative number
        return False


def remove_dead() -> list[str]:
    """Removes the folders of clusters that nobody keeps and of which no process is left; returns
    their ids. What may have a job is left for ``%tnt_cluster stop``.

    A batch system that ends a notebook's job kills the warden, too: nobody cleans up then.
    """
    removed = []
    for folder in known():
        record = read(folder)
        if record is None or record.pids != warden.pids_count_in() or record.plan["cancel"]:
            continue
        if not warden.processes_of(record.id) and lease.status(record.plan) is None:
            warden.remove([str(path) for path in folder.all])
            removed.append(record.id)
    return removed


def end(known: Known) -> None:
    """Ends a cluster that nobody owns, or whose warden has ended.

    Raises:
        ClusterError: somebody owns it, or something of it cannot be ended.
    """
    record = known.record
    if not record.here:
        raise ClusterError(f"Cluster {record.id} is kept on {record.host}: stop it there.")
    if known.kept is not None:
        lease.Lease.take(record.plan).release()
    elif left := warden.end(record.plan):
        raise ClusterError(f"{', '.join(map(str, left))} of cluster {record.id} cannot be ended.")
