"""Ends clusters that nobody owns, and removes what is left of those that were killed."""

from __future__ import annotations

from tnt_notebook import warden
from tnt_notebook.cluster import lease
from tnt_notebook.cluster import record as records
from tnt_notebook.cluster.folder import known
from tnt_notebook.cluster.record import Known
from tnt_notebook.errors import ClusterError


def remove_dead() -> list[str]:
    """Removes the folders of clusters that nobody keeps and of which no process is left; returns
    their ids. What may have a job is left for ``%tnt_cluster stop``.

    A batch system that ends a notebook's job kills the warden, too: nobody cleans up then.
    """
    removed = []
    for folder in known():
        record = records.read(folder)
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
        raise ClusterError(f"Of cluster {record.id} {', '.join(map(str, left))} cannot be ended.")
