"""Reads the frames of a run from its folder: at once, or while they are written."""

from __future__ import annotations

from pathlib import Path

from tnt_notebook.errors import TraceError
from tnt_notebook.telemetry import run_folder
from tnt_notebook.telemetry.codec import NewerError, decode_frame, decode_step
from tnt_notebook.telemetry.frame import Frame, Row
from tnt_notebook.telemetry.recorder import MAX_ROWS
from tnt_notebook.telemetry.sampling import thinned
from tnt_notebook.telemetry.step_trace import StepTrace


def read(folder: Path) -> list[Frame]:
    """All frames of a run, in order; with the latest step trace in the last.

    A last line that was not written to its end is left out.

    Raises:
        TraceError: a file cannot be read; the message names it, and the line.
    """
    return Reader(folder).new()


class Reader:
    """Reads a run that is still being written, each time from where it stopped."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._part = -1
        self._offset = self._line = 0
        self._rows: dict[float, dict[float, Row]] = {}
        self._ranks: dict[float, int] = {}
        self._step_time = 0.0
        self._step_stamp = 0

    def new(self) -> list[Frame]:
        """The frames since the last call; raises as `read` does."""
        try:
            frames = []
            for number, path in run_folder.parts(self._folder).items():
                if number >= self._part:
                    frames += self._new_of(number, path)
            self._with_latest_step(frames)
        except OSError as error:
            why = f"The run in {self._folder} cannot be read: {error.strerror}."
            raise TraceError(why) from None
        return frames

    def _new_of(self, number: int, path: Path) -> list[Frame]:
        if number > self._part:
            self._part, self._offset, self._line = number, 0, 0
        try:
            with open(path, "rb") as file:
                file.seek(self._offset)
                *lines, torn = file.read().split(b"\n")
                self._offset = file.tell() - len(torn)
        except FileNotFoundError:  # dropped since
            return []
        frames = []
        for line in lines:
            self._line += 1
            try:
                frames.append(self._whole(decode_frame(line)))
            except NewerError as error:
                raise TraceError(f"{path} was written by a newer version: {error}.") from None
            except ValueError as error:
                raise TraceError(f"{path}, line {self._line}: {error}.") from None
        return frames

    def _whole(self, frame: Frame) -> Frame:
        """The frame with all finished epochs; the file has only the new ones."""
        ranks = len(frame["samples"])
        if self._ranks.setdefault(frame["start"], ranks) != ranks:
            raise ValueError("the number of ranks has changed")
        rows = self._rows.setdefault(frame["start"], {})
        rows.update((row["epoch"] or 0.0, row) for row in frame.get("rows", []))
        if "rows" in frame or (rows and frame["state"] != "running"):
            frame["rows"] = thinned([rows[epoch] for epoch in sorted(rows)], MAX_ROWS)
        if "step_trace" in frame:
            self._step_time = max(self._step_time, frame["step_trace"]["time"])
        return frame

    def _with_latest_step(self, frames: list[Frame]) -> None:
        """Gives the last frame the latest step trace, if none of the frames had it."""
        latest = self._latest_step() if frames else None
        if latest is None or latest["time"] <= self._step_time:
            return
        owner = next((f for f in reversed(frames) if f["start"] <= latest["time"]), None)
        if owner is not None:
            owner["step_trace"] = latest
            self._step_time = latest["time"]

    def _latest_step(self) -> StepTrace | None:
        path = self._folder / run_folder.STEP
        try:
            stamp = path.stat().st_mtime_ns
            if stamp == self._step_stamp:
                return None
            text = path.read_bytes()
        except FileNotFoundError:
            return None
        self._step_stamp = stamp
        try:
            return decode_step(text)
        except ValueError as error:
            raise TraceError(f"{path}: {error}.") from None
