"""The course of a sweep on the ranks: trial after trial on each of several groups.

::

    ranks 0-1   | trial 0 | trial 3 | trial 4 ...
    ranks 2-3   | trial 1  x 3 dies | wait    | trial 6 ...    rank 3 is started again in between,
    ranks 4-5   | trial 2      | trial 5      | trial 7 ...    when the others have ended a trial

A trial needs the ranks of its group alone. Where one dies, the other groups end the trials that
they have begun; then it is started again, if that is possible, and all are divided anew.
"""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from tnt_notebook.cluster.files import fit_note
from tnt_notebook.cluster.handles.trial import Trial
from tnt_notebook.cluster.life import recovery
from tnt_notebook.cluster.life.ranks import Ranks, Ticket
from tnt_notebook.cluster.output.merger import ranks_label
from tnt_notebook.cluster.requests import groups
from tnt_notebook.cluster.requests.cell_queue import Several
from tnt_notebook.cluster.requests.engines import Engines
from tnt_notebook.cluster.requests.execution import RanksDied
from tnt_notebook.errors import (
    ClusterError,
    DeathError,
    ModelError,
    RankError,
    SweepError,
    TntError,
)
from tnt_notebook.sweep.space import Task
from tnt_notebook.sweep.study import Study
from tnt_notebook.words import number

#: As long as no trial has come to its end, so many that raise are enough: it is the cell.
MOST_FAILURES = 3


class TrialScheduler:
    """Rounds, and trials in each; any thread may look at it and end it.

    Args:
        title: of the sweep.
        changed: called when there is something new to show, from any thread.

    Attributes:
        error: why it has ended before its end.
        ends: set when no trial is to begin any more.
        notes: what there is to say, a line each.
    """

    def __init__(
        self,
        cluster: Ranks,
        task: Task,
        study: Study,
        cell: str,
        title: str,
        changed: Callable[[], None],
    ) -> None:
        self._cluster, self._task, self._study = cluster, task, study
        self._cell, self._title, self._changed = cell, title, changed
        self.error: TntError | None = None
        self.ends = threading.Event()
        self.notes: list[str] = []
        self._trials: list[Trial] = []
        self._lock = threading.Lock()
        self._death: DeathError | None = None  # since the ranks were divided
        self._fresh: set[int] = set()  # ranks that were started again, and know no names
        self._left_out: set[int] = set()

    @property
    def trials(self) -> list[Trial]:
        """All that have begun, in order."""
        with self._lock:
            return list(self._trials)

    @property
    def running(self) -> dict[int, Trial]:
        """By number, those that have not ended."""
        return {trial.number: trial for trial in self.trials if trial.state == "running"}

    def stop(self) -> None:
        """Ends all trials after their current steps; no other begins."""
        self.ends.set()
        for trial in self.running.values():
            trial.stop("cut off")

    def abort(self) -> None:
        """Ends all trials wherever their ranks are."""
        self.ends.set()
        for trial in self.running.values():
            trial.abort()

    def note(self, line: str) -> None:
        """Adds something to say; once."""
        if line not in self.notes:
            self.notes = [*self.notes, line]
        self._changed()

    def run(self, ticket: Ticket, began: Callable[[], None]) -> None:
        """Waits for its turn, and does all trials.

        Args:
            began: called when the first ones can begin.

        Raises:
            ClusterError: it cannot go on.
            TntError: :attr:`error`.
        """
        while True:
            queue, place = ticket
            try:
                with queue.turn(ticket=place) as engines:
                    self._round(engines, began)
            finally:
                queue.give_back(place)
            if self.error is not None:
                raise self.error
            if self.ends.is_set() or self._study.counted >= self._task.trials:
                return
            self._mend()
            ticket = self._cluster.draw("a sweep")

    def _round(self, engines: Engines, began: Callable[[], None]) -> None:
        """Divides the ranks that live, and has each group do trial after trial, until there are
        enough, or a rank has died."""
        queue = self._cluster.queue
        fit_note.remove(engines.folder)  # of a fit before: nobody is to join it now
        divided = self._divided(engines)
        groups.divide(queue, engines, divided)
        began()
        with queue.several() as several, ThreadPoolExecutor(len(divided)) as threads:
            working = [
                # What ranks print belongs under the cell of the sweep.
                threads.submit(
                    contextvars.copy_context().run, partial(self._work, engines, several, group)
                )
                for group in divided
            ]
            for one in working:
                one.result()

    def _divided(self, engines: Engines) -> list[list[int]]:
        hosts = {seat["rank"]: seat["host"] for seat in engines.record.seats}
        living = [rank for rank in engines.living if rank not in self._left_out]
        found = groups.groups_of(living, hosts, self._task.each)
        if not found:
            few = f"There are no {number(self._task.each, 'rank', f'{self._task.each} ranks')}"
            raise self._death or SweepError(f"{few} left on which trials can run.")
        if idle := sorted({*living}.difference(*found)):
            be = number(len(idle), "is", "are")
            self.note(f"{ranks_label(idle)} {be} left over: trials have {self._task.each} each.")
        self._death = None
        return found

    def _mend(self) -> None:
        """Has ranks that died started again, where that is possible."""
        gone = self._cluster.missing()
        if not gone or not self._cluster.survives:
            return
        try:
            recovery.start_missing(self._cluster)
            self._fresh.update(gone)
            self.note(f"{ranks_label(gone)} {number(len(gone), 'was', 'were')} started again.")
        except (ClusterError, RankError) as error:
            first = str(error).partition("\n")[0]
            self.note(f"It goes on without {ranks_label(gone)}: {first}")

    # In the threads of groups -----------------------------------------------------------------

    def _work(self, engines: Engines, several: Several, group: Sequence[int]) -> None:
        """Trial after trial on one group."""
        try:
            while not self.ends.is_set() and self._death is None:
                with self._lock:  # in the order of their numbers
                    asked = self._study.ask()
                    if asked is None:
                        return
                    trial = Trial(asked, group, self._study, self._task, self._changed)
                    self._trials.append(trial)
                self._changed()
                if not self._carry_out(trial, engines, several):
                    return
        except TntError as error:
            self._fail(error)
        except BaseException:
            self.stop()  # the others, so that whoever waits for them hears of it
            raise

    def _carry_out(self, trial: Trial, engines: Engines, several: Several) -> bool:
        """Runs a trial, and tells the study of its end; whether the group can do another one."""
        again, goes_on = False, True
        try:
            trial.run(engines, several, self._cell, self._title)
        except RanksDied as died:
            goes_on = False
            self._death = death = self._cluster.death(died.ranks)
            dead = f"{str(death).partition('. ')[0]}."
            trial.error = died.why if isinstance(died, groups.RanksKilled) else dead
        except ModelError as error:  # no other trial would do better
            goes_on = False
            self._fail(error)
        except RankError as error:
            if self._lacks_names(trial, error):
                again, goes_on = True, False
                trial.state = "cut off"
            else:
                self._count_failures(error)
        row = trial.row
        self._study.tell(
            trial.number, row.state, row.value, ranks=list(row.ranks), epoch=row.epoch,
            epochs=row.epochs, step_s=row.step_s, seconds=row.seconds, error=row.error,
            reached=row.value,
        )  # fmt: skip
        if again:
            self._study.again(trial.number)
        self._changed()
        return goes_on

    def _lacks_names(self, trial: Trial, error: RankError) -> bool:
        """Whether it failed for want of what cells had left on ranks before they died: it is no
        fault of its settings, and would happen to all trials there."""
        fresh = sorted(self._fresh & {*trial.ranks})
        if not fresh or NameError.__name__ not in error.kinds:
            return False
        self._left_out.update(trial.ranks)
        self.note(
            f"{ranks_label(trial.ranks)} {number(len(trial.ranks), 'is', 'are')} left out: "
            f"{ranks_label(fresh)} died, with all names, and the cell needs one."
        )
        return True

    def _count_failures(self, error: RankError) -> None:
        ended = [trial for trial in self.trials if trial.state != "running"]
        enough = len(ended) >= min(MOST_FAILURES, self._task.trials)
        if enough and self._study.best is None and all(one.state == "failed" for one in ended):
            self._fail(error)

    def _fail(self, error: TntError) -> None:
        self.error = self.error or error
        self.stop()
