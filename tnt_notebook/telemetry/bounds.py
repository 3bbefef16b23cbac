"""What is kept of a run, however long it is: frames, step traces, files.

Of a very long run fewer of the older frames are kept; what only some frames have goes with the
next one that stays. A step trace is a hundred times as large as the rest of a frame: on disk one is
kept whenever the run is a twentieth older than at the one before, some 150 of an hour, and 60 more
of a day; in the notebook about as many. The latest is always there.
"""

from __future__ import annotations

from typing import Any, cast

from tnt_notebook.telemetry.analysis import main_run
from tnt_notebook.telemetry.frame import Frame, Row, news, with_news
from tnt_notebook.telemetry.sampling import evenly

#: In the notebook: frames of a run (with 1,024 ranks they take 60 MB), those of them with a step
#: trace, and runs of a cell, which may predict in a loop.
MAX_FRAMES, MAX_STEPS, MAX_RUNS = 1000, 200, 16
#: On disk: bytes of a file of frames, of all files of a run, of all runs.
PART_BYTES, RUN_BYTES, TOTAL_BYTES = 4 << 20, 16 << 20, 512 << 20

_OLDER = 1.05
_LEAST_GAP_S = 0.5


class Bounded:
    """Takes the frames of a cell as they come, run by run.

    Of very many runs the first are dropped, but never the main one.

    Args:
        most_frames: of a run.
        most_runs: of the cell, which may predict in a loop.
    """

    def __init__(self, most_frames: int, most_runs: int) -> None:
        self._most_frames, self._most_runs = most_frames, most_runs
        self._runs: dict[float, list[Frame]] = {}  # by their start
        self._rows: dict[float, dict[float | None, Row]] = {}

    @property
    def frames(self) -> list[Frame]:
        """Those that are kept, run by run."""
        return [frame for run in self._runs.values() for frame in run]

    def add(self, frame: Frame) -> None:
        """Takes a frame in."""
        start = frame["start"]
        run = [*self._runs.get(start, []), self._with_shared_rows(frame)]
        self._runs[start] = _with_fewer_steps(_thinned(run, self._most_frames))
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


def _with_fewer_steps(run: list[Frame]) -> list[Frame]:
    stepped = [frame for frame in run if "step_trace" in frame]
    stay = {id(frame) for frame in evenly(stepped, MAX_STEPS, _elapsed)}
    passed = {id(frame) for frame in stepped} - stay
    return [without_step(frame) if id(frame) in passed else frame for frame in run]


def _elapsed(frame: Frame) -> float:
    return frame["elapsed"]


def _thinned(run: list[Frame], limit: int) -> list[Frame]:
    """Fewer, once there are more than the limit."""
    if len(run) <= limit:
        return run
    stay = {id(frame) for frame in evenly(run, limit, _elapsed)}
    thin: list[Frame] = []
    passed: dict[str, Any] = {}
    for frame in run:
        if id(frame) in stay:
            thin.append(cast(Frame, with_news(passed, frame)) if passed else frame)
            passed = {}
        else:
            passed = with_news(passed, news(frame))
    return thin


def next_step(elapsed: float) -> float:
    """How old a run is when another step trace is kept on disk, after one at this age."""
    return max(_OLDER * elapsed, elapsed + _LEAST_GAP_S)


def without_step(frame: Frame) -> Frame:
    """The frame without its step trace."""
    rest = frame.copy()
    rest.pop("step_trace", None)
    return rest
