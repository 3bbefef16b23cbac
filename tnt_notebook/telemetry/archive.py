"""The runs that are kept on disk: which there are, and how they ended."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from tnt_notebook import files
from tnt_notebook.errors import TraceError
from tnt_notebook.telemetry import run_folder
from tnt_notebook.telemetry.bounds import TOTAL_BYTES
from tnt_notebook.telemetry.codec import decode_frame
from tnt_notebook.telemetry.frame import Frame, State
from tnt_notebook.telemetry.kept_ribbon import Known
from tnt_notebook.telemetry.run_writer import measures

#: Seconds after which a writer on another host that has not written is taken for dead.
_QUIET_S = 600.0
_SILENT = "ended without a word"
_TAIL = 1 << 18


@dataclass(frozen=True)
class RunInfo:
    """A run as a list shows it.

    Attributes:
        id: the name of its folder.
        began: Unix time.
        state: ``running``, ``finished``, ``stopped``, ``failed``, ``damaged``, or ``ended without a
            word`` where its ranks were killed.
        seconds: how long its cell took, as its notebook knows it; else its fit, so far.
        samples_per_s: of all ranks while they train; 0 if it is not known.
        size: bytes on disk.
        host, kernel: where it ran, and the pid of its notebook's kernel.
        stops: whether `request_stop` can end it.
        error: why it failed, as its notebook was told; empty if it did not, or nobody knows.
        known: what else its notebook knows; None where that was gone at the end.
    """

    id: str
    folder: Path
    title: str
    ranks: int = 0
    began: float = 0.0
    state: str = "damaged"
    seconds: float = 0.0
    samples_per_s: float = 0.0
    size: int = 0
    host: str = ""
    kernel: int | None = None
    stops: bool = False
    error: str = ""
    known: Known | None = None
    options: dict[str, Any] = field(default_factory=dict)


def listed() -> list[RunInfo]:
    """All runs, the oldest first."""
    base = run_folder.base()
    try:
        names = os.listdir(base)
    except FileNotFoundError:
        return []
    except OSError as error:
        raise TraceError(f"The runs in {base} cannot be read: {error.strerror}.") from None
    found = [run for name in names if (run := about(base / name)) is not None]
    return sorted(found, key=lambda run: (run.began, run.id))


def ids() -> list[str]:
    """The ids of all runs, the oldest first, without a look into their folders."""
    try:
        return sorted(os.listdir(run_folder.base()))
    except OSError:
        return []


def about(folder: Path) -> RunInfo | None:
    """What a folder says of its run; ``None`` where it is no folder of a run."""
    try:
        with os.scandir(folder) as entries:
            size = sum(e.stat().st_size for e in entries if run_folder.is_of_a_run(e.name))
        text = (folder / run_folder.ABOUT).read_bytes()
    except OSError:  # also where it has just been removed
        return None
    try:
        return _info(folder, json.loads(text), size)
    except (TypeError, ValueError, KeyError, AttributeError, OverflowError, RecursionError):
        return RunInfo(folder.name, folder, folder.name, size=size)


def find(text: str = "last") -> RunInfo:
    """The run with this id, or whose id begins with or contains the text; or the ``last``.

    Raises:
        TraceError: there is none, or more than one.
    """
    runs = listed()
    if not runs:
        raise TraceError(
            f"No run is kept in {run_folder.base()}. Each %%tnt_fit keeps one while it trains."
        )
    if text == "last":
        return runs[-1]
    matching: list[RunInfo] = []
    for matches in (str.__eq__, str.startswith, str.__contains__):
        matching = matching or [run for run in runs if matches(run.id, text)]
    if len(matching) == 1:
        return matching[0]
    if not matching:
        raise TraceError(f"No run {text!r} is kept. %tnt_trace list shows those that are.")
    names = ", ".join(run.id for run in matching[:3]) + (", ..." if len(matching) > 3 else "")
    raise TraceError(f"{text!r} matches {len(matching)} runs: {names}. Write more of the id.")


def new_folder(title: str, total_bytes: int = TOTAL_BYTES) -> Path:
    """The name of a folder for a new run, which is not made yet.

    First the oldest runs that have ended are removed, until there is room.
    """
    base = run_folder.base().absolute()
    with contextlib.suppress(OSError, TraceError):  # who writes will say so
        base.mkdir(parents=True, exist_ok=True, mode=0o700)
        bound(total_bytes)
    return base / run_folder.new_name(title, time.time())


def ended() -> list[RunInfo]:
    """The runs that have ended, the oldest first."""
    return [run for run in listed() if run.state != "running"]


def bound(total_bytes: int = TOTAL_BYTES) -> None:
    """Removes the oldest runs that have ended, until all together are not larger than this."""
    runs = listed()
    total = sum(run.size for run in runs)
    for run in runs:
        if total <= total_bytes:
            return
        if run.state != "running":
            remove(run)
            total -= run.size


def conclude(folder: Path, state: State, error: str, known: Known) -> None:
    """Writes how a run ended, as its notebook knows it: ranks that died, or whose disk was full,
    wrote nothing. Does nothing where there is no such run.
    """
    with contextlib.suppress(OSError, ValueError, KeyError):
        said = json.loads((folder / run_folder.ABOUT).read_bytes())
        if "seconds" not in said and (last := _last_frame(folder)):
            said |= measures(last)
        took = known["ended"] - known["began"]
        end = {"state": state, "error": error, "known": known, "seconds": took}
        files.replace(folder / run_folder.ABOUT, said | end)


def request_stop(run: RunInfo) -> None:
    """Asks the ranks of a run to end their fit after the current step, if they run on this host."""
    now = about(run.folder)
    if now is not None and now.stops:
        said = json.loads((run.folder / run_folder.ABOUT).read_bytes())
        with contextlib.suppress(ProcessLookupError):
            os.kill(int(said["pid"]), int(said["stops_on"]))  # one rank's vote is enough


def remove(run: RunInfo) -> None:
    """Deletes a run's files and its folder; a file of somebody else's is left, with the folder."""
    with contextlib.suppress(FileNotFoundError):
        for name in os.listdir(run.folder):
            if run_folder.is_of_a_run(name):
                (run.folder / name).unlink(missing_ok=True)
        with contextlib.suppress(OSError):
            run.folder.rmdir()


def _info(folder: Path, said: dict[str, Any], size: int) -> RunInfo:
    last = None if "state" in said else _last_frame(folder)
    took = measures(last) if last else said
    state = _SILENT
    if "state" in said:
        state = str(said["state"])
    elif _writes(folder, said):
        state = "running"
    elif last and last["state"] != "running":
        state = last["state"]
    here = said["host"] == socket.gethostname()
    return RunInfo(
        id=folder.name, folder=folder, title=str(said["title"]), ranks=int(said["ranks"]),
        began=float(said["began"]), state=state, seconds=float(took.get("seconds", 0.0)),
        samples_per_s=float(took.get("samples_per_s_training", 0.0)), size=size,
        host=str(said["host"]),
        kernel=said["kernel"], stops=state == "running" and here and said["stops_on"] is not None,
        error=str(said.get("error", "")), options=dict(said["options"]),
        known=files.typed(Known, said["known"]) if "known" in said else None,
    )  # fmt: skip


def _writes(folder: Path, said: dict[str, Any]) -> bool:
    """Whether the process that writes this run is alive."""
    if said["host"] != socket.gethostname():
        newest = max((p.stat().st_mtime for p in run_folder.parts(folder).values()), default=0.0)
        return time.time() - newest < _QUIET_S
    try:
        # A pid is used again; a clock that was set moves what is said of the begin a little.
        began = psutil.Process(int(said["pid"])).create_time()
        return abs(began - float(said["pid_began"])) < 2.0
    except psutil.Error:
        return False


def _last_frame(folder: Path) -> Frame | None:
    for path in reversed(run_folder.parts(folder).values()):
        with open(path, "rb") as file:
            file.seek(max(0, path.stat().st_size - _TAIL))
            lines = file.read().split(b"\n")[:-1]
        if lines:
            with contextlib.suppress(ValueError):
                return decode_frame(lines[-1])
            return None
    return None
