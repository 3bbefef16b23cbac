"""The handle of a fit that runs on the ranks while the notebook goes on."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from tnt_notebook import telemetry
from tnt_notebook.cluster.files import fit_note
from tnt_notebook.cluster.files.fit_note import FitNote
from tnt_notebook.cluster.files.log_tails import LogTails
from tnt_notebook.cluster.handles import trained_model
from tnt_notebook.cluster.handles.handle import Handle
from tnt_notebook.cluster.life import recovery
from tnt_notebook.cluster.life.ranks import Ranks
from tnt_notebook.cluster.requests.execution import Execution
from tnt_notebook.cluster.requests.failure import rank_error
from tnt_notebook.dashboard import LiveView
from tnt_notebook.dashboard.figures import breakdown
from tnt_notebook.dashboard.figures.planned import timeline_from
from tnt_notebook.dashboard.figures.wording import progress
from tnt_notebook.dashboard.reports.trace import Trace
from tnt_notebook.errors import (
    DeathError,
    ModelError,
    RankError,
    StalledError,
    StuckError,
    SuspendedError,
    TntError,
)
from tnt_notebook.plan.simulate import Timeline
from tnt_notebook.protocol import Call, Published
from tnt_notebook.telemetry import Breakdown, Frame, Row, State, archive
from tnt_notebook.telemetry.kept_ribbon import Known, Mark
from tnt_notebook.telemetry.pace import FRAME_S
from tnt_notebook.telemetry.run_reader import Reader

#: Seconds after which a fit that was asked to stop is aborted: a step, and the end of an epoch with
#: its checkpoints, take less.
STOP_WITHIN_S = 60.0


class Fit(Handle):
    """A fit cell.

    Example::

        fit.history["loss"]     # so far, while it runs
        fit.stop()              # after the current step, on all ranks
        fit.wait().model        # the trained Keras model, in the notebook
    """

    def __init__(self, cluster: Ranks, note: FitNote, joins: bool = False) -> None:
        """
        Args:
            note: what is to be run.
            joins: whether another notebook has begun it.
        """
        super().__init__(note.title)
        self.folder = Path(note.run)
        self._note, self._joins = note, joins
        self._read_at = 0.0
        self._reader = Reader(self.folder)
        self._cluster = cluster
        self._failures = 0
        self._rows: list[Row] = []
        self._result: dict[str, Any] = {}
        self._execution: Execution | None = None
        self._stop_asked_at: float | None = None
        self.stop_within = STOP_WITHIN_S
        self._lock = threading.Lock()
        self._model: Any = None
        kept = archive.about(self.folder) if joins else None
        began = kept.began if kept else None
        self._view = LiveView(
            self.title, len(cluster.living), self.stop, self.save_trace, began
        )  # fmt: skip
        self._began = self._view.began  # that of this try; later ones have folders of their own
        self._marks: list[Mark] = []
        self._view.show()
        # Now, and not when the thread begins: what is run after this waits for it.
        self._ticket = queue, place = cluster.draw(self.title)
        if before := queue.before(place):
            print(f"{self.title} waits for {before} to end.", flush=True)
        self._begin()

    @property
    def cell(self) -> str:
        """The code that it runs."""
        return self._note.cell

    @property
    def options(self) -> dict[str, Any]:
        """How it is distributed: keyword arguments of ``tnt_notebook.distributed``."""
        return dict(self._note.options)

    @property
    def frames(self) -> list[Frame]:
        """What rank 0 said so far, a few times a second; of a very long run fewer of the older
        frames."""
        return self._view.frames

    @property
    def history(self) -> dict[str, list[float | None]]:
        """Loss and metrics by epoch, as Keras gives them; while it runs, of the epochs so far."""
        if "history" in self._result:
            return dict(self._result["history"])
        names = dict.fromkeys(name for row in self._rows for name in row if name != "epoch")
        return {name: [row[name] for row in self._rows if name in row] for name in names}

    @property
    def model(self) -> Any:
        """The trained Keras model; waits for the end of the fit and loads Keras here.

        Raises:
            ModelError: the model cannot be rebuilt in the notebook, or the ranks have trained
                another one since; the message says what to do.
        """
        self.wait()
        if self._model is None:
            self._model = trained_model.load_model(self.model_bytes())
        return self._model

    def model_bytes(self) -> bytes:
        """The trained model as the bytes of a ``.keras`` file."""
        self.wait()
        return self._cluster.ask(Call.MODEL, str(self.folder))

    @property
    def timeline(self) -> Timeline:
        """The median step of a pipeline, as measured on its first replica; waits for the end.

        Raises:
            ModelError: the model was not trained in a pipeline.
        """
        self.wait()
        step = self.trace.median_step
        found = timeline_from(step) if step else None
        if found is None:
            raise ModelError(
                f"{self.title} has no timeline: only pipelines have one. Train with --pipeline P."
            )
        return found

    def plot_timeline(self) -> Any:
        """The median step as a plotly figure: when each rank did what, as measured; while it runs,
        too.

        Raises:
            TraceError: no step was looked at closely.
        """
        return self.trace.plot_timeline()

    def plot_throughput(self) -> Any:
        """Samples per second while it trains, over time, by rank where ranks differ, as a plotly
        figure; also while it runs.

        Raises:
            TraceError: no step was done.
        """
        return self.trace.plot_throughput()

    @property
    def trace(self) -> Trace:
        """All that the ranks have told so far: to plot, to save, to compare with other runs."""
        return Trace(self.frames, self.title)

    def save_trace(self) -> str:
        """Writes :attr:`trace` into a new file in the current folder, for Perfetto; its path."""
        return str(self.trace.save_beside())

    @property
    def breakdown(self) -> list[Breakdown]:
        """Where the time of the median step went on each rank, in seconds; waits for the end.

        ``.input``: until its batch was there; ``.work``: forward and backward; ``.wait``: for other
        ranks of a pipeline; ``.skew``: at an exchange, until the last rank had come;
        ``.exchange``: while there was nothing else to do; ``.other``; ``.step``: all of them. The
        parts are means of sampled steps.

        Raises:
            ModelError: nothing was trained, or for a single step.
        """
        self.wait()
        if not (found := telemetry.breakdowns(telemetry.main_run(self.frames))):
            raise ModelError(f"{self.title} has no breakdown: only fits of several steps have one.")
        return found

    @property
    def promised_step_s(self) -> float | None:
        """Seconds of a step by the plan that it follows; None without, or before steps are seen."""
        return telemetry.promised_step_s(telemetry.main_run(self.frames))

    @property
    def limit(self) -> str:
        """What limits training most, and what to do about it; so far, while it runs."""
        return self.trace.limit

    def plot_breakdown(self) -> Any:
        """:attr:`breakdown` as a plotly figure, with what limits training."""
        return breakdown.figure_of(self.breakdown, self.limit)

    def stop(self) -> None:
        """Asks all ranks to end the fit after their current step; returns at once.

        If they have not come to the end of a step within :attr:`stop_within` seconds, it is
        aborted.
        """
        if (execution := self._ask_for_end()) is not None:
            execution.request_stop()

    def abort(self) -> None:
        """Ends the fit now, in the middle of a step; returns at once.

        Ranks that wait for others are freed, those in a cell's own code are interrupted there, and
        the error of the fit says where. Where a rank cannot be interrupted the engines are started
        anew. The model on the ranks is not to be used afterwards.
        """
        if (execution := self._ask_for_end(abort=True)) is not None:
            execution.abort()

    def _ask_for_end(self, abort: bool = False) -> Execution | None:
        with self._lock:
            self._aborted = self._aborted or abort
            self._stop_asked_at = self._stop_asked_at or time.monotonic()
            return self._execution

    @property
    def _is_to_end(self) -> bool:
        return self._stop_asked_at is not None

    def _said(self) -> str:
        return f"{self.state}{self._progress()}"

    def _progress(self) -> str:
        if (error := self.error) is not None:
            return f", {error}"
        if not self.frames or self.state == "queued":
            return ""
        return f", {progress(self.frames[-1])}"

    # In its own thread --------------------------------------------------------------------

    def _conclude(self, state: State) -> None:
        work, ticket = self._ticket
        work.give_back(ticket)
        reason, calls = _told(self._error, self._aborted and state == "stopped")
        self._view.finish(state, reason, calls)
        self._keep(state, reason, self._view.ended)

    def _work(self) -> State:
        while True:
            try:
                return self._train_once()
            except (DeathError, StalledError, StuckError, SuspendedError) as error:
                if isinstance(error, DeathError):
                    self._marks.append(self._view.mark(error.ranks, "dead"))
                if self._stop_asked_at is not None or self._note.restarts < 1:
                    raise
                self._go_on_after(error)

    def _go_on_after(self, error: TntError) -> None:
        """Makes ranks to go on with, from the last checkpoint."""
        self._failures += 1
        note = self._note
        reason = str(error).splitlines()[0]
        now = time.time()
        self._keep("failed", reason, now)
        self._began = now
        self._marks = [self._view.mark(self._cluster.living, "restart")]
        if isinstance(error, SuspendedError):
            self._cluster.restart()  # in a new job, where theirs is at its end
            job = self._cluster.record.job
            done = f"ranks were started again{f' in job {job}' if job else ''}"
        elif isinstance(error, StuckError):
            done = "all ranks were started again"
        elif isinstance(error, StalledError):
            done = "all ranks were freed, and go on"
        else:
            done = recovery.recover(self._cluster, note.on_failure)
        number = f"{self._failures} of at most {self._failures + note.restarts - 1}"
        print(f"{reason.split('. ')[0]}: {done}, from the last checkpoint ({number})", flush=True)
        kept = note.options["checkpoint"]
        if not Path(kept["folder"] or "/").is_dir():
            print("No checkpoint was kept, so training begins anew. --checkpoint DIR keeps them.")
        options = {**note.options, "checkpoint": {**kept, "resume": True}}
        self.folder = archive.new_folder(self.title)
        run, restarts = str(self.folder), note.restarts - 1
        self._note, self._joins = replace(note, run=run, options=options, restarts=restarts), False
        self._rows = []
        self._ticket = self._cluster.draw(self.title)

    def _keep(self, state: State, reason: str, ended: float) -> None:
        """Writes into the run's folder what only the notebook knows."""
        known = Known(began=self._began, ended=ended, marks=self._marks)
        archive.conclude(self.folder, state, reason, known)

    def _train_once(self) -> State:
        with self._turn() as execution:
            with self._lock:
                self._execution = execution
                self.state = "running"
            if self._stop_asked_at is not None:
                execution.request_stop()
            self._ticket[0].follow(execution)
        if self._joins:
            self._read_kept()
        if execution.failures:
            error = rank_error(execution.failures)
            if error.kinds == {SuspendedError.__name__}:
                raise SuspendedError(next(iter(execution.failures.values())).evalue)
            raise error
        self._result = execution.answers[min(execution.answers)]
        return "stopped" if self._result["stopped"] else "finished"

    @contextmanager
    def _turn(self) -> Iterator[Execution]:
        """Waits for its turn, and begins the fit or joins the one that was begun."""
        queue, ticket = self._ticket
        with queue.turn(ticket=ticket) as engines:
            living, note = engines.living, self._note
            if self._joins:
                tails = LogTails(engines.folder, note.logs)
                begun = Execution(engines, living, tails=tails, on_tick=self._on_tick, clears=False)
                yield begun.call(Call.FIT_RESULT, note.run)
                return
            fit_note.write(engines.folder, self._cluster.ranks, note)
            kept = {
                "title": note.title, "folder": note.run, "options": note.options,
                "kernel": os.getpid(), "ranks": len(living),
            }  # fmt: skip
            # The live view is in the same cell: it is not to be cleared.
            execution = Execution(
                engines, living, self._on_data, on_tick=self._on_tick, clears=False
            )
            yield execution.call(Call.RUN_FIT, note.cell, note.options, kept)

    def _on_tick(self) -> None:
        if self._joins and time.monotonic() - self._read_at >= FRAME_S:
            self._read_kept()
        execution, asked = self._execution, self._stop_asked_at
        if execution is None or asked is None or self._aborted:
            return
        if time.monotonic() - asked > self.stop_within:
            print(f"{self.title} has not come to a step's end for {self.stop_within:g} s: aborting")
            self.abort()

    def _read_kept(self) -> None:
        """Frames of a fit that was begun elsewhere: the messages go there, the files are here."""
        self._read_at = time.monotonic()
        if self.folder.is_dir():
            for frame in self._reader.new():
                self._take(frame)

    def _on_data(self, data: dict[str, Any]) -> None:
        if (frame := data.get(Published.FRAME)) is not None:
            self._take(frame)
        if (news := data.get(Published.ACTIVITIES)) is not None:
            self._view.tell([news])

    def _take(self, frame: Frame) -> None:
        self._rows = frame.get("rows") or self._rows
        self._view.update(frame)
        if self._stop_asked_at is not None and self._execution and frame["state"] == "running":
            # The first request may have reached a rank before the cell had begun there.
            self._execution.request_stop()


def _told(error: TntError | None, aborted: bool) -> tuple[str, str]:
    """What is said of an error on the card and in the run's folder, and the ranks' tracebacks."""
    if error is None:
        return "", ""
    whole, calls = str(error), ""
    if isinstance(error, RankError):
        whole, calls = error.whole, error.traceback
    return f"Aborted: {whole}" if aborted else whole, calls
