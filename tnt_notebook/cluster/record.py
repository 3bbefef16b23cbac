"""What is known of a cluster beside its owner: a file in its folder, read by whoever attaches."""

from __future__ import annotations

import json
import os
import platform
import sys
import time
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import psutil

from tnt_notebook.cluster import lease
from tnt_notebook.cluster.folder import RunFolder, known
from tnt_notebook.errors import ClusterError


@dataclass(frozen=True)
class Record:
    """A cluster, from its start on.

    Attributes:
        id: marks every process.
        ranks: how many.
        launcher: that started them.
        host: where controller and warden run.
        began: Unix time.
        state: ``starting`` or ``ready``.
        request: what was asked for, as plain data.
        plan: of the warden.
        controller, engines: pid and begin (Unix time) of the controller and of mpiexec; None where
            a job runs the engines.
        job: of a batch system.
        seats: what each rank said of itself.
        notebook: the kernel that owned it last, the same after a restart; "" outside of one.
        reached: by which address of this host engines reach it, and why that one.
        rounds: how often engines were started in the same job.
    """

    id: str
    ranks: int
    launcher: str
    host: str
    began: float
    request: dict[str, Any]
    plan: dict[str, Any]
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
    kept: dict[str, Any] | None = field(default=None)


def write(record: Record, folder: RunFolder) -> None:
    """Keeps a record; who reads sees the old one or the new."""
    beside = folder.record.with_suffix(".new")
    with open(beside, "w", opener=_private) as file:
        json.dump(asdict(record), file)
    os.replace(beside, folder.record)


def read(folder: RunFolder) -> Record | None:
    """The record in a folder; None where there is none, or none that can be understood."""
    try:
        said = json.loads(folder.record.read_bytes())
        record = Record(**said)
        return replace(
            record,
            began=float(record.began),
            controller=_process(record.controller),
            engines=_process(record.engines),
            seats=tuple(record.seats),
            plan={**record.plan, "id": str(record.plan["id"])},
        )
    except (OSError, ValueError, TypeError, KeyError, RecursionError):
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
    raise ClusterError(f"There are {len(meant)} clusters {what}: {ids}. Say which one.")


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
    try:
        found = psutil.Process(known_process[0])
        same = abs(found.create_time() - known_process[1]) < 2.0
        return same and found.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def begin(
    cluster_id: str, request: dict[str, Any], plan: dict[str, Any], folder: RunFolder
) -> Record:
    """The record of a cluster that is being started; kept at once."""
    record = Record(
        id=cluster_id,
        ranks=request["ranks"],
        launcher=request["launcher"],
        host=platform.node(),
        began=time.time(),
        request=request,
        plan=plan,
        notebook=notebook(),
    )
    write(record, folder)
    return record


def _process(said: Any) -> tuple[int, float] | None:
    return None if said is None else (int(said[0]), float(said[1]))


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)
