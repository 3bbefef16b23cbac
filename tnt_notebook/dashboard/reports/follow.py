"""The live view of a run that another kernel began: read from its folder while it is written."""

from __future__ import annotations

import threading

from tnt_notebook.dashboard.card.view import LiveView
from tnt_notebook.dashboard.reports.trace import Trace
from tnt_notebook.errors import TraceError
from tnt_notebook.telemetry import State, archive
from tnt_notebook.telemetry.archive import RunInfo
from tnt_notebook.telemetry.pace import FRAME_S
from tnt_notebook.telemetry.run_reader import Reader


def follow(run: RunInfo, leave: threading.Event) -> threading.Thread:
    """Shows a run under the current cell until it ends.

    Args:
        leave: ends the view before, when set.

    Returns:
        The thread that does it.
    """
    view = LiveView(
        run.title, run.ranks, lambda: archive.request_stop(run), lambda: _save(run), run.began
    )
    view.show()
    if not run.stops:
        print(f"It can only be stopped where it was started: on {run.host}.")
    thread = threading.Thread(
        target=_follow, args=(run, view, leave), name=f"tnt-follow-{run.id}", daemon=True
    )
    thread.start()
    return thread


def ending(run: RunInfo | None) -> tuple[State, str | None]:
    """How a run that is kept has ended, as a live view knows it: a state, and an error."""
    if run is None:
        return "failed", "Its folder was removed."
    if run.state in ("finished", "stopped", "failed"):
        return run.state, run.error or None  # type: ignore[return-value]
    if run.state == "running":
        return "stopped", "It still runs: only the view of it has ended."
    return "failed", "It ended without a word: its ranks were killed, or their host went down."


def _save(run: RunInfo) -> str:
    return str(Trace.open(run.folder).save_beside())


def _follow(run: RunInfo, view: LiveView, leave: threading.Event) -> None:
    reader = Reader(run.folder)
    try:
        while True:
            # Asked first: what was written before the end is then read after it.
            now = archive.about(run.folder)
            for frame in reader.new() if now else ():
                view.update(frame)
            if now is None or now.state != "running" or leave.wait(FRAME_S):
                break
        view.finish(*ending(now))
    except TraceError as error:
        view.finish("failed", str(error))
