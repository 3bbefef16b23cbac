"""What is logged of a fit: Keras's logs of each epoch, and beside them what ranks have measured."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from tnt_notebook.choices import TRACKERS
from tnt_notebook.comm import World
from tnt_notebook.error_text import brief
from tnt_notebook.errors import TrackerError
from tnt_notebook.parallel.consistency import agreement
from tnt_notebook.parallel.track.tracker import Fit, Run
from tnt_notebook.plan.track import Track
from tnt_notebook.telemetry import Breakdown, Frame, State, samples_per_s
from tnt_notebook.telemetry.breakdown import shares


def check_installed(over: World, track: Track) -> None:
    """Raises TrackerError on all ranks where rank 0 lacks the package of a tracker. Collective."""
    lacking = [TRACKERS[name][1] for name, _ in track.to if not _is_installed(name)]
    if lacking := agreement.from_rank_0(over, lacking):
        error = TrackerError(
            f"track needs {' and '.join(lacking)} on rank 0, which is not installed there: "
            f"pip install {' '.join(lacking)} into the Python of the ranks."
        )
        error.peers_know = True
        raise error


def _is_installed(name: str) -> bool:
    found = find_spec(name)
    return found is not None and found.origin is not None  # not a folder of runs of that name


class Tracking:
    """Takes the frames of one fit, and logs what is in them. On rank 0.

    Args:
        parameters: of the fit.
        shown: what shows the frames as well; None: nobody does.
    """

    def __init__(
        self, track: Track, parameters: Mapping[str, Any], shown: Callable[[Frame], None] | None
    ) -> None:
        self._track, self._parameters, self._shown = track, parameters, shown
        self._runs: dict[str, Run] = {}
        self._has_begun = False
        self._epoch = 0  # the last one that was logged
        self._seconds, self._samples = 0.0, 0.0
        self._latest: dict[str, float] = {}  # figures of the last look

    def __call__(self, frame: Frame) -> None:
        """A frame was made; the first one begins the runs, and the last one ends them."""
        if self._shown is not None:
            self._shown(frame)
        elif frame["state"] != "running":
            for told in (frame.get("diverged"), frame.get("skipped")):
                if told:
                    print(f"{told.rstrip('.')}.", flush=True)
        if not self._has_begun:
            self._begin()
        try:
            self._log(frame)
        finally:
            if frame["state"] != "running":
                self._end(frame["state"])

    def _begin(self) -> None:
        self._has_begun = True
        name = self._track.name or time.strftime("fit-%Y%m%d-%H%M%S")
        parameters = {**self._parameters, **self._track.parameters}
        for tracker, folder in self._track.to:
            try:
                begin = import_module(f"tnt_notebook.parallel.track.{tracker}").begin
                self._runs[tracker] = begin(Fit(name, folder, self._track.group, parameters))
            except Exception as error:
                self._end("failed")
                raise TrackerError(f"{tracker} could not begin a run: {error}") from error

    def _end(self, state: State) -> None:
        self._for_each(lambda run: run.end(state))

    def _log(self, frame: Frame) -> None:
        self._latest |= figures_of(frame)
        for row in frame.get("rows", ()):
            epoch = int(row["epoch"] or 0)
            if epoch <= self._epoch:
                continue
            logs = {n: math.nan if v is None else v for n, v in row.items() if n != "epoch"}
            # Earlier epochs are those before a checkpoint: the figures are not theirs.
            figures = self._of_epoch(frame) if row is frame["rows"][-1] else {}
            self._tell(epoch, logs | figures)
            self._epoch = epoch
        if frame["state"] != "running" and self._epoch and self._latest:
            whole = {**self._latest, "samples_per_s": samples_per_s([frame])}
            self._tell(self._epoch, {f"tnt/run/{name}": value for name, value in whole.items()})

    def _of_epoch(self, frame: Frame) -> dict[str, float]:
        took, samples = frame["spent"], sum(frame["samples"]) / frame["sharing"]
        seconds = took["steps_s"] + took["first_steps_s"]
        rate = (samples - self._samples) / max(seconds - self._seconds, 1e-9)
        self._seconds, self._samples = seconds, samples
        return {f"tnt/{n}": v for n, v in {**self._latest, "samples_per_s": rate}.items()}

    def _tell(self, epoch: int, figures: Mapping[str, float]) -> None:
        self._for_each(lambda run: run.log(epoch, figures))

    def _for_each(self, do: Callable[[Run], None]) -> None:
        """A tracker that fails, on a full disk say, says so and gets no more: training goes on."""
        for tracker, run in [*self._runs.items()]:
            try:
                do(run)
            except Exception as error:
                del self._runs[tracker]
                print(f"This fit is not logged to {tracker} any more: {brief(error)}", flush=True)


def figures_of(frame: Frame) -> dict[str, float]:
    """What is new in a frame: the parts of a step, 0 to 1, in the mean of ranks, where ``bubble``
    is what ranks of a pipeline wait for each other; ``step_s``, the seconds of a median step;
    ``memory_bytes``, of the rank that has most; ``sent_bytes``, by a rank in a step."""
    found: dict[str, float] = {}
    if "step_s" in frame and "breakdown" in frame:  # the first step of an epoch stands for no other
        found = shares([Breakdown(*parts) for parts in frame["breakdown"]])
        bubble, conversion = found.pop("wait"), found.pop("conversion")
        if frame.get("setup", {}).get("stages", 1) > 1:
            found["bubble"] = bubble
        if conversion:
            found["conversion"] = conversion
        found["step_s"] = frame["step_s"]
    if "memory" in frame:
        found["memory_bytes"] = max(frame["memory"]) << 20
    if "sent" in frame:
        found["sent_bytes"] = frame["sent"]
    return found
