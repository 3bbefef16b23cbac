"""Which step traces are kept of a run: many of its beginning, fewer as it grows old.

A step trace is a hundred times as large as the rest of a frame. One is kept whenever the run is a
twentieth older than at the one before: some 150 of an hour, and 60 more of a day.
"""

from __future__ import annotations

from tnt_notebook.telemetry.frame import Frame

_OLDER = 1.05
_LEAST_GAP_S = 0.5


class Sparse:
    """Chooses among the step traces of the runs of a cell, in order of time."""

    def __init__(self) -> None:
        self._next: dict[float, float] = {}
        self._passing: dict[float, Frame] = {}

    def wants(self, frame: Frame) -> bool:
        """Whether the step trace of a frame, which must have one, is to be kept."""
        start, elapsed = frame["start"], frame["elapsed"]
        if frame["state"] == "running" and elapsed < self._next.get(start, 0.0):
            return False
        self._next[start] = max(_OLDER * elapsed, elapsed + _LEAST_GAP_S)
        return True

    def add(self, frames: list[Frame], frame: Frame) -> None:
        """Appends a frame, and takes from the one before it a step trace that is not to be kept: so
        that the latest is always there.
        """
        if "step_trace" in frame:
            passed = self._passing.pop(frame["start"], None)
            at = next((i for i in reversed(range(len(frames))) if frames[i] is passed), None)
            if passed is not None and at is not None:
                frames[at] = without_step(passed)
            if not self.wants(frame):
                self._passing[frame["start"]] = frame
        if frame["state"] != "running":
            self.forget(frame["start"])
        frames.append(frame)

    def forget(self, start: float) -> None:
        """A run has ended: a cell may have very many."""
        self._next.pop(start, None)
        self._passing.pop(start, None)


def without_step(frame: Frame) -> Frame:
    """The frame without its step trace."""
    rest = frame.copy()
    rest.pop("step_trace", None)
    return rest
