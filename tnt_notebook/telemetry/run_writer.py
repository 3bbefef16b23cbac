"""Keeps the frames of a run on disk, where they outlive ranks and kernel."""

from __future__ import annotations

import os
import socket
import time
from pathlib import Path
from typing import IO, Any, cast

import psutil

from tnt_notebook import files
from tnt_notebook.telemetry import run_folder
from tnt_notebook.telemetry.analysis import samples_per_s
from tnt_notebook.telemetry.bounds import PART_BYTES, RUN_BYTES, next_step, without_step
from tnt_notebook.telemetry.codec import encode
from tnt_notebook.telemetry.frame import Frame, Row, State, news, with_news
from tnt_notebook.telemetry.pace import FRAME_S

_JITTER_S = 0.01


def begin(
    title: str,
    ranks: int,
    folder: Path | None = None,
    *,
    options: dict[str, Any] | None = None,
    kernel: int | None = None,
    stops_on: int | None = None,
    part_bytes: int = PART_BYTES,
    run_bytes: int = RUN_BYTES,
) -> Writer:
    """Makes a run's folder; this process is its writer.

    Args:
        folder: whose parent must be there; default: a new one in :func:`run_folder.base`.
        options: what the run was begun with, for whoever reads about it.
        kernel: pid of the notebook's kernel.
        stops_on: signal to this process that ends the run after its current step.
        part_bytes: size at which a file of frames is full.
        run_bytes: size of all files of frames that is not exceeded.

    Raises:
        OSError: it cannot be made.
    """
    began = time.time()
    if folder is None:
        folder = run_folder.base() / run_folder.new_name(title, began)
        folder.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    folder.mkdir(mode=0o700)
    about = {
        "v": 1, "title": title, "ranks": ranks, "began": began, "host": socket.gethostname(),
        "pid": os.getpid(), "pid_began": psutil.Process().create_time(), "kernel": kernel,
        "stops_on": stops_on, "options": options or {},
    }  # fmt: skip
    files.replace(folder / run_folder.ABOUT, about)
    return Writer(folder, about, part_bytes, run_bytes)


class Writer:
    """Writes the frames of one cell. Made by :func:`begin`."""

    def __init__(self, folder: Path, about: dict[str, Any], part_bytes: int, run_bytes: int):
        self.folder = folder
        self._about = about
        self._part_bytes, self._run_bytes = part_bytes, run_bytes
        self._runs: dict[float, _Pending] = {}
        self._main: Frame | None = None
        self._number = 0
        self._file = self._opened()

    def write(self, frame: Frame) -> None:
        """Writes a frame, at most four a second; the next takes along what is new in a dropped one.

        Raises:
            OSError: the disk is full, or not there any more.
        """
        if self._main is None or frame["phase"] == "fit" or self._main["phase"] != "fit":
            self._main = frame
        run = self._runs.setdefault(frame["start"], _Pending())
        if "step_trace" in frame:
            files.replace(self.folder / run_folder.STEP, frame["step_trace"])
        if (kept := run.take(frame)) is None:
            return
        if kept["state"] != "running":
            del self._runs[kept["start"]]
        line = encode(kept)
        if 0 < self._file.tell() > self._part_bytes - len(line):
            self._next_part()
        self._file.write(line)
        self._file.flush()

    def close(self, state: State | None = None) -> None:
        """Writes how it ended.

        Args:
            state: default: what the last frame says.

        Raises:
            OSError: it cannot be written.
        """
        self._file.close()
        end: dict[str, Any] = {"ended": time.time()}
        if self._main is not None:
            end |= measures(self._main) | {"state": self._main["state"]}
        if state is not None:
            end["state"] = state
        files.replace(self.folder / run_folder.ABOUT, self._about | end)

    def _opened(self) -> IO[bytes]:
        return open(run_folder.part(self.folder, self._number), "ab", opener=files.private)

    def _next_part(self) -> None:
        self._file.close()
        self._number += 1
        for run in self._runs.values():
            run.epoch = 0.0  # earlier parts may be deleted: write all epochs again
        sizes = {path: path.stat().st_size for path in run_folder.parts(self.folder).values()}
        for path in list(sizes)[1:]:
            if sum(sizes.values()) > self._run_bytes - self._part_bytes:
                path.unlink()
                del sizes[path]
        self._file = self._opened()


class _Pending:
    """Of one run, what is yet to be written."""

    def __init__(self) -> None:
        self.epoch = 0.0
        """The last finished epoch that was written: a frame has all of them, each time."""
        self._rows: list[Row] = []
        self._next = self._next_step = 0.0
        self._held: dict[str, Any] = {}

    def take(self, frame: Frame) -> Frame | None:
        """The frame to write now, with the news of those before it; ``None``: not yet."""
        if "step_trace" in frame:
            if frame["state"] == "running" and frame["elapsed"] < self._next_step:
                frame = without_step(frame)
            else:
                self._next_step = next_step(frame["elapsed"])
        if frame["state"] == "running" and frame["time"] < self._next:
            self._held = with_news(self._held, news(frame))
            return None
        self._next = frame["time"] + FRAME_S - _JITTER_S
        whole = cast(Frame, with_news(self._held, frame))
        self._held = {}
        self._rows = whole.pop("rows", self._rows)
        if rows := [row for row in self._rows if (row["epoch"] or 0) > self.epoch]:
            whole["rows"] = rows
            self.epoch = rows[-1]["epoch"] or 0
        return whole


def measures(frame: Frame) -> dict[str, float]:
    """How long a run took until a frame, and samples per second of all ranks while they train."""
    return {"seconds": frame["elapsed"], "samples_per_s_training": samples_per_s([frame])}
