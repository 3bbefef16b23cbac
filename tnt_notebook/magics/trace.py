"""``%tnt_trace``: runs that are kept on disk, listed, shown, exported and compared."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from pathlib import Path

from IPython.core.error import UsageError

from tnt_notebook.dashboard.card import saved
from tnt_notebook.dashboard.card.saved import PLOTLY
from tnt_notebook.dashboard.figures.wording import clock, plural, rate, size
from tnt_notebook.dashboard.reports.follow import ending, follow
from tnt_notebook.dashboard.reports.trace import Trace
from tnt_notebook.errors import TraceError
from tnt_notebook.magics import progress
from tnt_notebook.magics.table import Table
from tnt_notebook.telemetry import archive, run_folder
from tnt_notebook.telemetry.archive import RunInfo
from tnt_notebook.telemetry.kept_ribbon import ribbon_of
from tnt_notebook.telemetry.run_reader import read

LATEST = 20
HEADERS = ("id", "title", "ranks", "began", "state", "took", "samples/s while training", "size")
_LEFT = {"id", "title", "began", "state"}


def show_list(everything: bool = False) -> None:
    """Prints a table of the latest runs, or of all."""
    runs = archive.listed()
    base = run_folder.base()
    if not runs:
        print(f"no run is kept in {base}")
        return
    shown = runs if everything else runs[-LATEST:]
    print(Table(HEADERS, [cells_of(run) for run in shown], _LEFT).text())
    older = len(runs) - len(shown)
    beside = f"; {older:,} older: %tnt_trace list --all" if older else ""
    print(f"{plural(len(runs), 'run')}, {size(sum(run.size for run in runs))} in {base}{beside}")


def show(run: RunInfo, leave: threading.Event) -> Trace:
    """Shows summary and figure of a run; one that still goes on is followed to its end.

    Args:
        leave: ends following, when set.
    """
    frames = read(run.folder)
    trace = Trace(frames, run.title)
    if run.state == "running":
        follow(run, leave)
        return trace
    ribbon = ribbon_of(frames, run.known)
    told = saved.summary_bundle(run.title, run.ranks, frames, *ending(run), ribbon)
    progress.show(told, saved.figure_bundle(frames))
    return trace


def export(run: RunInfo, to: Path | None) -> Trace:
    """Writes a run into a file, in the format that its name's ending says."""
    to = to or Path(f"{run.id}.json")
    if to.suffix not in (".json", ".csv"):
        raise UsageError(f"--to {to}: the name ends in .json (for Perfetto) or .csv (a table)")
    trace = Trace(read(run.folder), run.title)
    try:
        trace.save(to)
        written = size(to.stat().st_size)
    except OSError as error:
        raise TraceError(f"{to} cannot be written: {error.strerror}.") from None
    where = ": open it in https://ui.perfetto.dev" if to.suffix == ".json" else ""
    print(f"wrote {to}, {written}{where}")
    return trace


def compare(runs: Sequence[RunInfo]) -> list[Trace]:
    """Shows runs beside each other in one figure."""
    same = len({run.title for run in runs}) < len(runs)
    traces = [
        Trace(read(run.folder), f"{run.title} {_time(run, '%H:%M:%S')}" if same else run.title)
        for run in runs
    ]
    figure = traces[0].compare(*traces[1:])
    names = ", ".join(trace.title for trace in traces)
    text = f"Figure: {names} beside each other."
    progress.show({"text/plain": text, PLOTLY: figure.to_plotly_json()})
    return traces


def remove(runs: Sequence[RunInfo]) -> None:
    """Deletes runs that have ended."""
    for run in runs:
        if run.state == "running":
            raise TraceError(f"{run.id} still runs, and is kept.")
    for run in runs:
        archive.remove(run)
    print(f"{plural(len(runs), 'run')} removed, {size(sum(run.size for run in runs))}")


def cells_of(run: RunInfo) -> list[str]:
    """A row of the list."""
    return [
        run.id, run.title if len(run.title) <= 24 else f"{run.title[:23]}…", str(run.ranks),
        _time(run, "%Y-%m-%d %H:%M"), run.state, clock(run.seconds),
        rate(run.samples_per_s) if run.samples_per_s else "-", size(run.size),
    ]  # fmt: skip


def _time(run: RunInfo, form: str) -> str:
    return time.strftime(form, time.localtime(run.began))
