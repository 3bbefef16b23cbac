"""The handle of a sweep: many trials of one cell on parts of the cluster, while the notebook goes
on."""

from __future__ import annotations

import threading
import time
from typing import Any

from tnt_notebook.cluster.handles.handle import Handle
from tnt_notebook.cluster.handles.trial_scheduler import TrialScheduler
from tnt_notebook.cluster.life.ranks import Ranks
from tnt_notebook.dashboard.card.sweep_picture import best_line, headline
from tnt_notebook.dashboard.card.sweep_view import SweepView
from tnt_notebook.dashboard.figures.sweep_figure import figure_of
from tnt_notebook.errors import SweepError
from tnt_notebook.sweep.board import Board, Row
from tnt_notebook.sweep.results import frame_of, row_of
from tnt_notebook.sweep.space import Task
from tnt_notebook.sweep.study import Study
from tnt_notebook.telemetry import State
from tnt_notebook.words import number


class Sweep(Handle):
    """A sweep of a cell. It is stopped where its time is over, too; a trial that failed is no error
    of the sweep.

    Example::

        sweep.best              # the best trial so far: .number, .settings, .value
        sweep.frame()           # all trials, for pandas
        sweep.stop(3)           # ends one trial, and without a number all of them
        sweep.wait()
    """

    def __init__(self, cluster: Ranks, task: Task, cell: str, title: str = "sweep") -> None:
        """
        Args:
            task: what is to be tried.
            cell: ordinary Keras code.

        Raises:
            SweepError: it cannot be; nothing has begun.
        """
        task.check()
        if task.each > (there := len(cluster.living)):
            raise SweepError(
                f"--each {task.each}: the cluster has {there} {number(there, 'rank', 'ranks')}, "
                f"and a trial cannot have more."
            )
        super().__init__(title)
        self._task = task
        self._study = Study(task, cell)
        self._earlier = [row_of(t, t.number in self._study.cut) for t in self._study.trials]
        self._by_person = False
        self._began, self._took = time.time(), 0.0
        self._clock: threading.Timer | None = None
        self._view = SweepView(title, lambda: self.board, self.stop)
        self._scheduler = TrialScheduler(cluster, task, self._study, cell, title, self._view.update)
        if self._study.said:
            self._scheduler.note(self._study.said)
        self._view.show()
        # Now, and not when the thread begins: what is run after this waits for it.
        self._ticket = cluster.draw(self.title)
        self._begin()

    @property
    def board(self) -> Board:
        """All trials so far, as they are shown."""
        rows = [*self._earlier, *(trial.row for trial in self._scheduler.trials)]
        state, error = {"queued": "starting"}.get(self.state, self.state), self._error
        if state == "running" and self._scheduler.ends.is_set():
            state = "stopping"
        return Board(
            self.title, state, self._task.objective, self._task.space, self._task.trials, rows,
            self._scheduler.notes, "" if error is None else getattr(error, "whole", str(error)),
            self._took or time.time() - self._began,
        )  # fmt: skip

    @property
    def best(self) -> Row | None:
        """The best trial that has come to its end, with its ``number``, ``settings`` and ``value``;
        None as long as there is none."""
        return self.board.best

    @property
    def study(self) -> Any:
        """Optuna's study, for its own analyses and figures."""
        return self._study.optuna

    def frame(self) -> Any:
        """All trials so far, a row each, as a pandas DataFrame: settings, state, objective, epochs,
        seconds of the median step and in all, ranks, and why it failed.

        Raises:
            SweepError: pandas is not installed.
        """
        return frame_of(self.board)

    def figure(self) -> Any:
        """Parallel coordinates of the trials so far, as a plotly figure."""
        return figure_of(self.board)

    def stop(self, trial: int | None = None) -> None:
        """Ends a trial after its current step, or all of them and the sweep; returns at once.

        Args:
            trial: its number; all when None. Other trials go on, and new ones begin.

        Raises:
            ValueError: no such trial runs.
        """
        if trial is None:
            self._by_person = True
            self._scheduler.stop()
        elif trial in (running := self._scheduler.running):
            running[trial].stop()
        else:
            raise ValueError(f"trial {trial} of {self.title} does not run")
        self._view.update()

    def abort(self) -> None:
        """Ends all trials wherever their ranks are; returns at once."""
        self._by_person = self._aborted = True
        self._scheduler.abort()

    @property
    def _is_to_end(self) -> bool:
        return self._scheduler.ends.is_set()

    def _said(self) -> str:
        board = self.board
        return ", ".join(filter(None, [self.state, headline(board), best_line(board)]))

    # In its own thread ------------------------------------------------------------------------

    def _work(self) -> State:
        self._scheduler.run(self._ticket, self._divided)
        return "stopped" if self._scheduler.ends.is_set() else "finished"

    def _is_wanted(self) -> bool:
        return self._by_person

    def _conclude(self, state: State) -> None:
        if self._clock is not None:
            self._clock.cancel()
        self._study.close()
        self._took = time.time() - self._began
        self._view.finish(self.board)

    def _divided(self) -> None:
        """The ranks are divided, for the first time or once more."""
        if self.state == "queued":
            self.state, self._began = "running", time.time()
            if self._task.timeout_s is not None:
                self._clock = threading.Timer(self._task.timeout_s, self._time_is_over)
                self._clock.daemon = True
                self._clock.start()
        self._view.update()

    def _time_is_over(self) -> None:
        self._scheduler.note("Its time is over: what ran was stopped.")
        self._scheduler.stop()
