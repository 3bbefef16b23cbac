"""``%tnt_trace``: runs that are kept on disk."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from IPython.core.error import UsageError
from IPython.core.magic_arguments import argument, magic_arguments

from tnt_notebook.magics.session import Session, check_name

if TYPE_CHECKING:
    from tnt_notebook.telemetry.archive import RunInfo


@magic_arguments()
@argument(
    "action",
    choices=["list", "show", "export", "compare", "remove"],
    help="what to do with saved runs",
)
@argument(
    "runs",
    nargs="*",
    metavar="ID",
    help="ID as list shows it, a part of it, or last (default: the last run of this notebook, else "
    "the latest)",
)
@argument("--to", type=Path, metavar="FILE", help="for export: run.json, or run.csv")
@argument("--all", action="store_true", help="for list and remove: all runs")
@argument("--name", default="trace", help="variable that gets the result (default: trace)")
def tnt_trace(session: Session, arguments: Namespace) -> None:
    """Lists, shows, exports and compares runs: each %%tnt_fit saves its run to disk while it
    trains, where it outlives ranks and kernel.

    show: summary and figure; a run in progress, from this notebook before its kernel was restarted
    or from another one, is followed to its end. export: for https://ui.perfetto.dev, or as a table.
    Runs are deleted by remove, and the oldest when all together exceed 512 MB.

    The run is in the variable ``trace``, or the one that --name sets; for compare, it is a list::

        trace.plot_timeline()       # the median step; also plot_throughput, plot_breakdown
        trace.to_pandas()           # a row for each box of the recorded steps
        trace.save("run.json")

    Examples::

        %tnt_trace list
        %tnt_trace show
        %tnt_trace show 20261121-1930
        %tnt_trace export last --to run.json
        %tnt_trace compare a1b2 c3d4
        %tnt_trace remove a1b2
    """
    from tnt_notebook.magics import trace
    from tnt_notebook.telemetry import archive

    check_name(arguments.name)
    action, names = arguments.action, arguments.runs
    if arguments.to is not None and action != "export":
        raise UsageError("--to goes with export only")
    if arguments.all and (action not in ("list", "remove") or names):
        raise UsageError("--all goes with list and remove, and no ID")
    most = {"list": 0, "show": 1, "export": 1}.get(action, len(names))
    if len(names) > most:
        raise UsageError(f"{action} takes no more: {' '.join(names[most:])} is too much")
    if action == "compare" and len(names) < 2:
        raise UsageError("compare needs two runs: %tnt_trace compare ID1 ID2")
    if action == "remove" and not names and not arguments.all:
        raise UsageError("remove needs to know which: %tnt_trace remove ID, or --all")
    if action == "list":
        trace.show_list(arguments.all)
    elif action == "remove":
        trace.remove([archive.find(n) for n in names] if names else archive.ended())
    else:
        runs = [archive.find(name) for name in names] or [_latest_run(session)]
        if action == "show":
            result: Any = trace.show(runs[0], session.closed)
        elif action == "export":
            result = trace.export(runs[0], arguments.to)
        else:
            result = trace.compare(runs)
        session.bind(arguments.name, result)


def _latest_run(session: Session) -> RunInfo:
    from tnt_notebook.telemetry import archive

    own = archive.about(session.last_run) if session.last_run else None
    return own or archive.find()
