"""What ``%tnt_cluster`` does: start, list, attach, stop, and what it says of each."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from IPython.core.error import UsageError
from IPython.core.magic_arguments import argument

from tnt_notebook import words
from tnt_notebook.cluster.options import OPTIONS, Option
from tnt_notebook.errors import ClusterError
from tnt_notebook.magics.progress import StatusLine
from tnt_notebook.magics.table import Table

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

    from tnt_notebook.cluster import Cluster
    from tnt_notebook.cluster.record import Known, Record

ACTIONS = ("start", "status", "stop", "restart", "logs", "list", "attach", "detach")
_HEADERS = ("id", "ranks", "launcher", "host", "began", "owner", "state")


def start_arguments(magic: Callable[..., Any]) -> Callable[..., Any]:
    """Declares the options of start as arguments of a magic."""
    for option in reversed(OPTIONS.values()):
        if option.typed:
            magic = argument(
                option.flag,
                dest=option.name,
                action="append" if option.repeated else "store",
                type=option.kind if option.kind in (int, float) else str,
                choices=option.choices or None,
                metavar=option.metavar,
                help=option.help,
            )(magic)
    return magic


def given(arguments: Any) -> dict[str, Any]:
    """Options of start that were typed.

    Raises:
        UsageError: one that goes with another action.
    """
    action = arguments.action
    options = {
        name: _value(option, value)
        for name, option in OPTIONS.items()
        if option.typed and (value := getattr(arguments, name)) is not None
    }
    goes_with = {OPTIONS[name].flag: ["start"] for name in options}
    if "keep" in options:
        goes_with["--keep"] = ["start", "detach"]
    goes_with |= {
        flag: [only]
        for flag, only, given in (
            ("--dry-run", "start", arguments.dry_run),
            ("--missing", "restart", arguments.missing),
            ("--force", "attach", arguments.force),
        )
        if given
    }
    for flag, actions in goes_with.items():
        if action not in actions:
            raise UsageError(f"{flag} goes with {' and '.join(actions)} only")
    if arguments.which is not None and action not in ("logs", "attach", "stop"):
        raise UsageError(f"{action} takes no more: {arguments.which} is too much")
    return options


def start(options: dict[str, Any], shell: InteractiveShell) -> Cluster:
    from tnt_notebook.cluster import Cluster

    progress = StatusLine()
    cluster = Cluster(report=progress.update, **options)
    _outlive(cluster, shell, "keep" in options)
    progress.end(ready(cluster))
    return cluster


def attach(which: str | None, force: bool, shell: InteractiveShell) -> Cluster:
    """Takes over a cluster, and the fit that goes on there."""
    from tnt_notebook.cluster import Cluster

    cluster = Cluster.attach(which, force)
    _outlive(cluster, shell, False)
    busy = ", a fit goes on" if cluster.has_begun_fit else ""
    ranks, are = words.ranks(cluster.ranks), words.number(cluster.ranks, "is", "are")
    print(f"{ranks} of cluster {cluster.id} {are} here again{busy}")
    return cluster


def detach(cluster: Cluster, keep: float | None) -> None:
    """Leaves the ranks to whoever attaches to them, for some hours."""
    kept = cluster.let_go(keep)
    ranks, live = words.ranks(cluster.ranks), words.number(cluster.ranks, "lives", "live")
    print(
        f"{ranks} of cluster {kept.id} {live} on for {words.about(kept.plan['keep_s'])} without an "
        f"owner: %tnt_cluster attach {kept.id}"
    )


def stop_other(which: str) -> None:
    """Ends a cluster that is not this notebook's, if nobody owns it."""
    from tnt_notebook.cluster import record

    known = record.find(which)
    record.end(known)
    print(f"cluster {known.record.id} stopped")


def show_list(own: str | None) -> None:
    """A line for each cluster of this user.

    Args:
        own: the id of this notebook's.
    """
    from tnt_notebook.cluster import record

    rows = [_row(known, own) for known in record.listed()]
    if rows:
        print(Table(_HEADERS, rows, {*_HEADERS} - {"ranks"}).text())
    else:
        print("no cluster is running")


def ready(cluster: Cluster) -> str:
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
        message = getattr(getattr(shell, "kernel", None), "_shutdown_message", None)
        return asked or bool(message and message["content"].get("restart"))

    cluster.outlives = outlives


def _row(known: Known, own: str | None) -> Sequence[str]:
    record, kept = known.record, known.kept
    return (
        record.id,
        str(record.ranks),
        record.launcher + (f" {record.job}" if record.job else ""),
        record.host,
        time.strftime("%d %b %H:%M", time.localtime(record.began)),
        "this notebook" if record.id == own else _owner(record, kept),
        _state(record, kept),
    )


def _owner(record: Record, kept: dict[str, Any] | None) -> str:
    from tnt_notebook.cluster.lease import described

    if kept is None:
        return "?" if not record.here else "nobody"
    return described(kept["owner"]) if kept["owner"] else "nobody"


def _state(record: Record, kept: dict[str, Any] | None) -> str:
    if kept is None:
        lost = f"remove it: %tnt_cluster stop {record.id}"
        return lost if record.here else f"ask on {record.host}"
    said = "a fit goes on" if kept["busy"] else record.state
    if kept["owner"] is None:
        left = kept["ends_in_s"]
        after_fit = kept["busy"] and not left
        said += ", ends after the fit" if after_fit else f", ends in {words.about(left)}"
    return said


def _value(option: Option, said: Any) -> Any:
    """The value of an option, of what was typed."""
    said = _unquoted(said)
    if option.kind is dict:
        return _variables(said)
    if option.kind is tuple and not option.repeated:
        return said.replace(",", " ").split()
    return said


def _variables(said: Sequence[str]) -> dict[str, str]:
    found = {}
    for text in said:
        name, equals, value = text.partition("=")
        if not equals:
            raise UsageError(f"--env {text}: write it as NAME=VALUE")
        found[name] = value
    return found


def _unquoted(said: Any) -> Any:
    """What was typed, without the quotes around it, which IPython leaves there."""
    if isinstance(said, list):
        return [_unquoted(text) for text in said]
    if not isinstance(said, str):
        return said
    found = re.fullmatch(r"""([\w-]*=)?(["'])(.*)\2""", said, re.DOTALL)
    return said if found is None else (found[1] or "") + found[3]


def check_none(cluster: Cluster | None) -> None:
    """Raises where this notebook has a cluster already."""
    if cluster is not None:
        raise ClusterError(
            f"A cluster of {cluster.ranks} ranks is already there. %tnt_cluster restart starts it "
            "anew; for another one, %tnt_cluster stop or detach it first."
        )
