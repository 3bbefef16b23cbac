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
        pids: where their process numbers count, see :func:`tnt_notebook.warden.pids_count_in`.
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
    pids: str
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
    kept: dict[str, Any] | None = None


def write(record: Record, folder: RunFolder) -> None:
    """Keeps a record."""
    files.replace(folder.record, asdict(record))


def read(folder: RunFolder) -> Record | None:
    """The record in a folder; None where there is none, or none that can be understood."""
    try:
        return _record(json.loads(folder.record.read_bytes()))
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
        pids=warden.pids_count_in(),
        began=time.time(),
        request=request,
        plan=plan,
        notebook=notebook(),
    )
    write(record, folder)
    return record


def _record(said: Any) -> Record:
    """A record of what a file holds; raises where that is none."""
    plan, seats = _a(dict, said["plan"]), _a(list, said["seats"])
    for name in ("id", "socket", "busy"):
        _a(str, plan[name])
    for name in ("folders", "ask", "cancel", "listing", "sweep"):
        _all(str, plan[name])
    time.localtime(said["began"])  # raises where that is no time
    return Record(
        id=_a(str, plan["id"]),
        ranks=_a(int, said["ranks"]),
        launcher=_a(str, said["launcher"]),
        host=_a(str, said["host"]),
        pids=_a(str, said["pids"]),
        began=float(said["began"]),
        request=_a(dict, said["request"]),
        plan=plan,
        state=_a(str, said["state"]),
        controller=_process(said["controller"]),
        engines=_process(said["engines"]),
        job=None if said["job"] is None else _a(str, said["job"]),
        seats=tuple(_all(dict, seats)),
        notebook=_a(str, said["notebook"]),
        reached=_a(str, said["reached"]),
        rounds=_a(int, said["rounds"]),
    )


def _a(kind: type, value: Any) -> Any:
    if not isinstance(value, kind):
        raise TypeError(f"{value!r} is no {kind.__name__}")
    return value


def _all(kind: type, values: Any) -> list[Any]:
    return [_a(kind, value) for value in _a(list, values)]


def _process(said: Any) -> tuple[int, float] | None:
    if said is None:
        return None
    pid, began = _a(list, said)
    return _a(int, pid) if 0 < pid < 1 << 31 else 0, float(began)
