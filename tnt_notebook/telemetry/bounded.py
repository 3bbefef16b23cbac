"""The frames of a cell in bounded memory, however long it runs."""

from __future__ import annotations

from typing import cast

from tnt_notebook.telemetry.frame import NOW_AND_THEN, Frame, Row
from tnt_notebook.telemetry.runs import main_run
from tnt_notebook.telemetry.sparse import Sparse
from tnt_notebook.telemetry.thin import evenly


class Bounded:
    """Takes the frames of a cell as they come, run by run.

    Of a very long run fewer of the older frames are kept; what is told only now and then goes with
    the next that stays. Of very many runs the first are dropped, but never the main one.

    Args:
        most_frames: of a run.
        most_runs: of the cell, which may predict in a loop.
    """

    def __init__(self, most_frames: int, most_runs: int) -> None:
        self._most_frames, self._most_runs = most_frames, most_runs
        self._runs: dict[float, list[Frame]] = {}  # by their start
        self._rows: dict[float, dict[float | None, Row]] = {}
        self._sparse = Sparse()

    @property
    def frames(self) -> list[Frame]:
        """Those that are kept, run by run."""
        return [frame for run in self._runs.values() for frame in run]

    def add(self, frame: Frame) -> None:
        """Takes a frame in."""
        start = frame["start"]
        run = self._runs.setdefault(start, [])
        self._sparse.add(run, self._with_shared_rows(frame))
        self._runs[start] = _thinned(run, self._most_frames)
        if len(self._runs) > self._most_runs:
            main = main_run(self.frames)[0]["start"]
            old = next(other for other in self._runs if other != main)
            del self._runs[old]
            self._rows.pop(old, None)

    def _with_shared_rows(self, frame: Frame) -> Frame:
        """A frame has all finished epochs, each time; here each of them is kept once."""
        if "rows" not in frame:
            return frame
        known = self._rows.get(frame["start"], {})
        rows = {row["epoch"]: row for row in frame["rows"]}
        rows = {
            epoch: row if known.get(epoch) != row else known[epoch] for epoch, row in rows.items()
        }
        self._rows[frame["start"]] = rows
        return cast(Frame, {**frame, "rows": list(rows.values())})


def _thinned(run: list[Frame], limit: int) -> list[Frame]:
    """Fewer, once there are more than the limit."""
    if len(run) <= limit:
        return run
    stay = {id(frame) for frame in evenly(run, limit, lambda frame: frame["elapsed"])}
    thin: list[Frame] = []
    passed: dict[str, object] = {}
    for frame in run:
        if id(frame) in stay:
            thin.append(cast(Frame, {**passed, **frame}) if passed else frame)
            passed = {}
        else:
            passed |= {name: value for name, value in frame.items() if name in NOW_AND_THEN}
    return thin
