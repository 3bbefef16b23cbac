"""``%tnt_cluster``: starts, watches, finds again and stops the ranks that cells run on."""

from __future__ import annotations

from argparse import Namespace

from IPython.core.error import UsageError
from IPython.core.magic_arguments import argument, magic_arguments

from tnt_notebook.errors import ClusterError
from tnt_notebook.magics import cluster as cluster_magic
from tnt_notebook.magics.progress import StatusLine
from tnt_notebook.magics.session import Session
from tnt_notebook.magics.table import links_line, status_table


@magic_arguments()
@argument("action", choices=list(cluster_magic.ACTIONS), help="what to do with a cluster")
@argument("which", nargs="?", metavar="WHICH", help="logs: a rank; attach, stop: an ID")
@cluster_magic.start_arguments
@argument("--dry-run", action="store_true", help="show the script or command, start nothing")
@argument("--missing", action="store_true", help="restart: only ranks that have died")
@argument("--force", action="store_true", help="attach: take it from an owner that lives")
def tnt_cluster(session: Session, arguments: Namespace) -> None:
    """Starts, watches, finds again and stops the ranks that cells run on.

    The ranks are MPI processes, pinned to cores. They belong to this notebook: when its kernel
    is shut down, they end. When it is restarted, or crashes, they live on for a while, and
    attach brings them back: with their variables, and with the view of a fit that goes on.

    Examples::

        %tnt_cluster start -n 4            # four ranks on this machine
        %tnt_cluster start -n 8 --gpus 4   # two ranks per GPU
        %tnt_cluster start --launcher ssh --hostfile hosts.txt
        %tnt_cluster start --launcher slurm --nodes 2 --per-node 4 --gpus 4 --time 12h
        %tnt_cluster start --launcher slurm -n 8 --dry-run      # the script, and no job
        %tnt_cluster status                # a line for each rank, and how they exchange
        %tnt_cluster logs 2                # what rank 2 wrote, C++ libraries included
        %tnt_cluster restart               # the same again, variables on the ranks are lost
        %tnt_cluster list                  # all clusters of yours
        %tnt_cluster attach                # after a restart of the kernel
        %tnt_cluster detach --keep 8       # leaves it for another notebook
        %tnt_cluster stop
    """
    action, which = arguments.action, arguments.which
    options = cluster_magic.given(arguments)
    if action == "start" and arguments.dry_run:
        from tnt_notebook.cluster import Cluster

        print(Cluster.planned(**options), end="")
    elif action == "start":
        cluster_magic.check_none(session.running)
        session.running = cluster_magic.start(options, session.shell)
    elif action == "attach":
        cluster_magic.check_none(session.running)
        _attach(session, which, arguments.force)
    elif action == "list":
        cluster_magic.show_list(_own_id(session))
    elif action == "status":
        print(status_table(session.cluster.status()))
        print(links_line(session.cluster.links, session.cluster.ranks))
    elif action == "logs":
        _logs(session, which)
    elif action == "restart":
        _restart(session, arguments.missing)
    elif action == "detach":
        cluster_magic.detach(session.cluster, options.get("keep"))
        session.running = None
    elif which is not None and which != _own_id(session):
        cluster_magic.stop_other(which)
    else:
        session.cluster  # noqa: B018  says so when there is nothing to stop
        session.close()
        print("cluster stopped")


def _own_id(session: Session) -> str | None:
    return None if session.running is None else session.running.id


def _attach(session: Session, which: str | None, force: bool) -> None:
    session.running = cluster_magic.attach(which, force, session.shell)
    if (fit := session.running.begun_fit()) is not None:
        session.follow(fit)


def _restart(session: Session, missing: bool) -> None:
    progress = StatusLine()
    if missing:
        from tnt_notebook.cluster.recovery import start_missing

        start_missing(session.cluster)
        progress.end(cluster_magic.ready(session.cluster))
        return
    try:
        session.cluster.restart(progress.update)
    except ClusterError:
        session.running = None  # it has stopped, and a new one may be started
        raise
    progress.end(cluster_magic.ready(session.cluster))


def _logs(session: Session, which: str | None) -> None:
    if which is not None and not which.isdecimal():
        raise UsageError(f"logs takes a rank, and not {which!r}")
    for one in range(session.cluster.ranks) if which is None else [int(which)]:
        log = session.cluster.logs(one)
        print(f"--- rank {one} ---\n{log}" if log else f"--- rank {one} --- (empty)")
