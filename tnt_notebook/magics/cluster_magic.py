"""``%tnt_cluster``: starts, watches, finds again and stops the ranks that cells run on."""

from __future__ import annotations

import time
from argparse import Namespace
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from IPython.core.error import UsageError
from IPython.core.magic_arguments import argument, magic_arguments

from tnt_notebook import words
from tnt_notebook.errors import ClusterError
from tnt_notebook.jupyter import notebook
from tnt_notebook.jupyter.server import what_it_lacks
from tnt_notebook.magics.cluster_actions import ACTIONS
from tnt_notebook.magics.cluster_options import given, start_arguments
from tnt_notebook.magics.progress import StatusLine
from tnt_notebook.magics.session import Session
from tnt_notebook.magics.table import Table, links_line, status_table

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

    from tnt_notebook.cluster import Cluster
    from tnt_notebook.cluster.files.record import Known

_HEADERS = ("id", "ranks", "launcher", "host", "began", "owner", "state")


@magic_arguments()
@argument("action", choices=list(ACTIONS), help="what to do with a cluster")
@argument("which", nargs="?", metavar="WHICH", help="logs: a rank; attach, stop: an ID")
@start_arguments
@argument("--dry-run", action="store_true", help="show the script or command, start nothing")
@argument("--missing", action="store_true", help="restart: only ranks that have died")
@argument("--force", action="store_true", help="attach: take it over even if its owner is alive")
def tnt_cluster(session: Session, arguments: Namespace) -> None:
    """Starts, monitors, reattaches to and stops the ranks that cells run on.

    The ranks are MPI processes, each on its own cores if there are enough. They belong to this
    notebook: when its kernel is shut down, they end. When it is restarted or crashes, they live on
    for a while, and attach brings them back, with their variables and the view of a running fit.

    Examples::

        %tnt_cluster start -n 4            # four ranks on this machine
        %tnt_cluster start -n 8 --gpus 4   # two ranks per GPU
        %tnt_cluster start --launcher ssh --hostfile hosts.txt
        %tnt_cluster start --launcher slurm --nodes 2 --per-node 4 --gpus 4 --time 12h
        %tnt_cluster start --launcher slurm -n 8 --dry-run      # shows the script, starts no job
        %tnt_cluster status                # a line for each rank, and how ranks exchange data
        %tnt_cluster logs 2                # what rank 2 wrote, without TensorFlow's banner
        %tnt_cluster restart               # the same ranks again; variables on them are lost
        %tnt_cluster list                  # all your clusters
        %tnt_cluster attach                # after a restart of the kernel
        %tnt_cluster detach --keep 8       # leaves it for another notebook
        %tnt_cluster stop
    """
    action, which = arguments.action, arguments.which
    options = given(arguments)
    if action == "start" and arguments.dry_run:
        from tnt_notebook.cluster import Cluster

        print(Cluster.planned(**options), end="")
    elif action == "start":
        _start(session, options)
    elif action == "attach":
        _attach(session, which, arguments.force)
    elif action == "list":
        _show_list(_own_id(session))
    elif action == "status":
        print(status_table(session.cluster.status()))
        print(links_line(session.cluster.links, session.cluster.ranks))
    elif action == "logs":
        _logs(session, which)
    elif action == "restart":
        _restart(session, arguments.missing)
    elif action == "detach":
        _detach(session, options.get("keep"))
    elif which is not None and which != _own_id(session):
        _stop_other(which)
    else:
        if not session.cluster.is_ours:
            session.cluster.record  # noqa: B018  says what has become of it
        session.close()
        print("cluster stopped")


def _own_id(session: Session) -> str | None:
    return None if session.running is None else session.running.id


def _restart(session: Session, missing: bool) -> None:
    progress = StatusLine()
    if missing:
        from tnt_notebook.cluster.life.recovery import start_missing

        start_missing(session.cluster)
        progress.end(_ready(session.cluster))
        return
    try:
        session.cluster.restart(progress.update)
    except ClusterError:
        session.running = None  # it has stopped, and a new one may be started
        raise
    progress.end(_ready(session.cluster))


def _logs(session: Session, which: str | None) -> None:
    if which is not None and not which.isdecimal():
        raise UsageError(f"logs takes a rank, and not {which!r}")
    for one in range(session.cluster.ranks) if which is None else [int(which)]:
        log = session.cluster.logs(one)
        print(f"--- rank {one} ---\n{log}" if log else f"--- rank {one} --- (empty)")


def _start(session: Session, options: dict[str, Any]) -> None:
    from tnt_notebook.cluster import Cluster

    _check_none(session)
    progress = StatusLine()
    session.running = cluster = Cluster(report=progress.update, warn=print, **options)
    _outlive(cluster, session.shell, "keep" in options)
    progress.end(_ready(cluster))
    if lacks := what_it_lacks():
        print(lacks)


def _attach(session: Session, which: str | None, force: bool) -> None:
    """Takes over a cluster, and the fit that goes on there."""
    from tnt_notebook.cluster import Cluster

    _check_none(session)
    session.running = cluster = Cluster.attach(which, force)
    _outlive(cluster, session.shell, False)
    busy = ", a fit goes on" if cluster.has_begun_fit else ""
    ranks, are = words.ranks(cluster.ranks), words.number(cluster.ranks, "is", "are")
    print(f"{ranks} of cluster {cluster.id} {are} here again{busy}")
    if (fit := cluster.begun_fit()) is not None:
        session.follow(fit)


def _detach(session: Session, keep: float | None) -> None:
    """Leaves the ranks to whoever attaches to them, for some hours."""
    cluster = session.cluster
    kept = cluster.let_go(keep)
    session.running = None
    ranks, live = words.ranks(cluster.ranks), words.number(cluster.ranks, "lives", "live")
    print(
        f"{ranks} of cluster {kept.id} {live} on for {words.about(kept.plan['keep_s'])} without an "
        f"owner: %tnt_cluster attach {kept.id}"
    )


def _stop_other(which: str) -> None:
    """Ends a cluster that is not this notebook's, if nobody owns it."""
    from tnt_notebook.cluster.files import record

    known = record.find(which)
    record.end(known)
    print(f"cluster {known.record.id} stopped")


def _show_list(own: str | None) -> None:
    """A line for each cluster of this user; of which ``own`` is this notebook's."""
    from tnt_notebook.cluster.files import record

    rows = [_row(known, own) for known in record.listed()]
    if rows:
        print(Table(_HEADERS, rows, {*_HEADERS} - {"ranks"}).text())
    else:
        print("no cluster is running")


def _ready(cluster: Cluster) -> str:
    """What a cluster is, once it answers."""
    said = f"{words.ranks(cluster.ranks)} {words.number(cluster.ranks, 'is', 'are')} ready"
    record = cluster.record
    if record.launcher == "local":
        return said
    hosts = list(dict.fromkeys(seat["host"] for seat in record.seats))
    job = f"job {record.job} on " if record.job else "on "
    some = ", ".join(hosts[:4]) + (f" and {len(hosts) - 4} more" if len(hosts) > 4 else "")
    return f"{said}: {job}{some}; this notebook is at {record.reached}"


def _outlive(cluster: Cluster, shell: InteractiveShell, asked: bool) -> None:
    """Says when the ranks stay as the kernel ends: they were to be kept, or it begins anew."""

    def outlives() -> bool:
        return asked or notebook.is_restarting()

    cluster.outlives = outlives


def _row(known: Known, own: str | None) -> Sequence[str]:
    from tnt_notebook.cluster.files.words import described_owner, described_state

    record = known.record
    return (
        record.id,
        str(record.ranks),
        record.launcher + (f" {record.job}" if record.job else ""),
        record.host,
        time.strftime("%d %b %H:%M", time.localtime(record.began)),
        "this notebook" if record.id == own else described_owner(known),
        described_state(known),
    )


def _check_none(session: Session) -> None:
    """Raises where this notebook has a cluster already."""
    if session.running is not None and session.running.is_ours:
        raise ClusterError(
            f"A cluster of {session.running.ranks} ranks is already there. %tnt_cluster restart "
            "starts it anew; for another one, %tnt_cluster stop or detach it first."
        )
