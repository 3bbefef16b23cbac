"""What ``%tnt_cluster`` can do, and what may follow each action: for checks, help, completion."""

from __future__ import annotations

from tnt_notebook.cluster.launch.options import OPTIONS
from tnt_notebook.magics.action import Action

ACTIONS = {
    "start": Action(
        "starts ranks: on this machine, on other hosts, or in a job",
        flags=(*(option.flag for option in OPTIONS.values() if option.typed), "--dry-run"),
    ),
    "status": Action("a line for each rank, and how ranks exchange data"),
    "stop": Action("stops the ranks", "ID"),
    "restart": Action(
        "starts the same ranks again; variables on them are lost", flags=("--missing",)
    ),
    "logs": Action("what ranks wrote, including C++ libraries", "RANK"),
    "list": Action("all your clusters"),
    "attach": Action("takes over ranks that live on after a kernel restart", "ID", ("--force",)),
    "detach": Action("leaves the ranks for another notebook", flags=("--keep",)),
}
