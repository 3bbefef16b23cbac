"""One trial of a sweep on a group of ranks: watched, pruned, stopped, and judged."""

from __future__ import annotations

import math
import os
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tnt_notebook.cluster.handles.fit import STOP_WITHIN_S
from tnt_notebook.cluster.requests import groups
from tnt_notebook.cluster.requests.cell_queue import Several
from tnt_notebook.cluster.requests.engines import Engines
from tnt_notebook.cluster.requests.execution import Execution
from tnt_notebook.cluster.requests.failure import rank_error
from tnt_notebook.errors import ModelError, RankError
from tnt_notebook.protocol import Call, Published
from tnt_notebook.sweep.board import Row, TrialState
from tnt_notebook.sweep.space import Task
from tnt_notebook.sweep.study import Asked, Study
from tnt_notebook.telemetry import Frame, State, archive
from tnt_notebook.telemetry.kept_ribbon import Known


class Trial:
    """From when its settings are chosen until it has a value, or none.

    Args:
        ranks: that train it.
        task: of the sweep.
        changed: called when there is something new to show; from any thread.

    Attributes:
        state: see :class:`tnt_notebook.sweep.board.Row`.
        value: of the objective, so far or at the end.
        error: why it failed.
    """

    def __init__(
        self,
        asked: Asked,
        ranks: Sequence[int],
        study: Study,
        task: Task,
        changed: Callable[[], None],
    ) -> None:
        self.number, self.settings = asked
        self.ranks = list(ranks)
        self.state: TrialState = "running"
        self.value: float | None = None
        self.error = ""
        self._study, self._objective, self._changed = study, task.objective, changed
        self._options = task.options
        self._began, self._ended = time.time(), 0.0
        self._values: list[float] = []
        self._start = 0.0  # of the fit of the cell that runs
        self._epoch = self._epochs = self._before = 0  # those of fits before it
        self._step_s: float | None = None
        self._lock = threading.Lock()
        self._execution: Execution | None = None
        self._ends_as: TrialState | None = None
        self._asked_at: float | None = None
        self._offered: list[str] | None = None  # what a fit reports instead of the objective

    @property
    def row(self) -> Row:
        """As it is shown now."""
        seconds = (self._ended or time.time()) - self._began
        return Row(
            self.number, self.settings, self.state, self.ranks, self._epoch, self._epochs,
            self.value, self._step_s, seconds, self.error,
        )  # fmt: skip

    def run(self, engines: Engines, several: Several, cell: str, title: str) -> None:
        """Runs it to its end; :attr:`state` and :attr:`value` say what came of it.

        Raises:
            RanksDied: ranks of it died.
            RankError: the cell raised.
            ModelError: the cell reports no such objective.
        """
        folder = archive.new_folder(f"{title}-{self.number}")
        kept = {
            "title": f"{title}-{self.number}", "folder": str(folder), "kernel": os.getpid(),
            "options": {"settings": self.settings, **self._options}, "ranks": len(self.ranks),
        }  # fmt: skip
        try:
            execution = groups.begin(
                engines, self.ranks, Call.RUN_TRIAL, cell, self.settings,
                self._objective.expression, self._own_options(cell, title), kept,
                on_data=self._on_data, on_tick=self._on_tick,
            )  # fmt: skip
            several.add(execution)
            with self._lock:
                self._execution = execution
            if self._ends_as is not None:
                execution.request_stop()
            groups.follow(engines, execution)
            if execution.failures:
                raise rank_error(execution.failures)
            self._judge(execution.answers[min(execution.answers)])
        except BaseException as error:
            self.error = str(error).partition("\n")[0]
            if isinstance(error, RankError) and self._ends_as is not None:
                self.state = self._ends_as  # whatever the ranks raised for it
                return
            self.state = "failed"
            raise
        finally:
            self._ended = time.time()
            ended: State = "finished" if self.state == "complete" else "stopped"
            known = Known(began=self._began, ended=self._ended, marks=[])
            state = "failed" if self.state == "failed" else ended
            archive.conclude(folder, state, self.error, known)

    def _own_options(self, cell: str, title: str) -> dict[str, Any]:
        """Those of its fits: checkpoints are in a folder of its own, and of its settings, which
        trackers are told as well."""
        options = dict(self._options)
        if "checkpoint" in options:
            said = options["checkpoint"]
            folder = str(Path(said["folder"]) / f"trial-{self.number}")
            options["checkpoint"] = {**said, "folder": folder, "run": f"{cell}\n{self.settings}"}
        if "track" in options:
            options["track"] = {
                "to": options["track"], "group": title, "name": f"{title}-{self.number}",
                "parameters": self.settings,
            }  # fmt: skip
        return options

    def stop(self, state: TrialState = "stopped") -> None:
        """Asks its ranks to end after their current step; returns at once."""
        with self._lock:
            self._ends_as = self._ends_as or state
            self._asked_at = self._asked_at or time.monotonic()
            execution = self._execution
        if execution is not None:
            execution.request_stop()

    def abort(self) -> None:
        """Ends it wherever its ranks are."""
        self.stop("cut off")
        if self._execution is not None:
            self._execution.abort()

    def _judge(self, answer: dict[str, Any]) -> None:
        name, history = self._objective.name, answer["history"]
        if self._offered is not None:
            raise self._no_objective(self._offered)
        if answer["diverged"] and self._ends_as is None:
            self.state, self.error = "failed", answer["diverged"].partition(": ")[0]
            return
        if self._ends_as is not None or answer["stopped"]:
            self.state = self._ends_as or "stopped"
            return
        if self._objective.expression is not None:
            self.value = answer["value"]
        elif name not in history or not history[name]:
            raise self._no_objective([*history])
        else:
            self.value = self._objective.of(list(history[name]))
        if self.value is None or not math.isfinite(self.value):
            self.state, self.error = "failed", f"{name} is {self.value}"
        else:
            self.state = "complete"

    def _no_objective(self, offered: list[str]) -> ModelError:
        name = self._objective.name
        if self._objective.expression is None and offered:
            does = f"The fit of the cell does not report {name}. It reports {', '.join(offered)}"
        else:
            does = f"The cell trains nothing that reports {name}"
        return ModelError(
            f"{does}: name one of those with --objective, give the model that metric (and "
            "validation data, for one of validation), or pass --value EXPRESSION."
        )

    # In the thread that waits -----------------------------------------------------------------

    def _on_tick(self) -> None:
        asked = self._asked_at
        if asked is not None and time.monotonic() - asked > STOP_WITHIN_S:
            self._asked_at = math.inf
            self.abort()

    def _on_data(self, data: dict[str, Any]) -> None:
        frame: Frame | None = data.get(Published.FRAME)
        if frame is None or frame["phase"] != "fit":
            return
        if frame["start"] != self._start:
            self._start, self._before = frame["start"], self._epoch
            self._values.clear()
        self._epochs = self._before + frame["epochs"]
        self._step_s = frame.get("step_s", self._step_s)
        for row in frame.get("rows", []):
            epoch = self._before + int(row["epoch"] or 0)
            if epoch > self._epoch:
                self._epoch = epoch
                self._epoch_ended(row)
        if self._asked_at is not None and self._execution and frame["state"] == "running":
            # The first request may have reached a rank before the cell had begun there.
            self._execution.request_stop()
        self._changed()

    def _epoch_ended(self, row: dict[str, float | None]) -> None:
        name = self._objective.name
        if self._objective.expression is not None:
            return
        if name not in row:
            # Not every epoch need be validated.
            if not name.startswith("val_") or any(other.startswith("val_") for other in row):
                self._offered = [other for other in row if other != "epoch"]
                self.stop()
            return
        value = row[name]
        self._values.append(math.nan if value is None else value)
        self.value = self._objective.of(self._values)
        is_worse = self._study.report(self.number, self._epoch, self._values[-1])
        if is_worse and self._ends_as is None and self._epoch < self._epochs:
            self.stop("pruned")
