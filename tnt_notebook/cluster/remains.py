"""What clusters have left on this host whose warden was killed together with them.

A batch system does so to a notebook that runs in a job: nobody is left then to clean up.
"""

from __future__ import annotations

from tnt_notebook import warden
from tnt_notebook.cluster import lease
from tnt_notebook.cluster import record as records
from tnt_notebook.cluster.folder import known


def remove() -> list[str]:
    """Removes the folders of clusters that nobody keeps and of which no process is left; returns
    their ids. What may have a job is left for ``%tnt_cluster stop``."""
    removed = []
    for folder in known():
        record = records.read(folder)
        if record is None or not record.here or record.plan["cancel"]:
            continue
        if not warden.processes_of(record.id) and lease.status(record.plan) is None:
            warden.remove([str(path) for path in folder.all])
            removed.append(record.id)
    return removed
