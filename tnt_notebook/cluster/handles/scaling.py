"""A study of scaling on the ranks of a cluster: the same cell on more and more of them, in
interleaved rounds.

The first p ranks are a world of their own while a cell runs on them; the others wait for the next
request. What a plan needs is asked in the first round, when the cell has run.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from typing import Any

from tnt_notebook.cluster.life.ranks import Ranks
from tnt_notebook.cluster.output.merger import ranks_label
from tnt_notebook.cluster.requests import groups
from tnt_notebook.cluster.requests.engines import Engines
from tnt_notebook.cluster.requests.execution import Execution
from tnt_notebook.cluster.requests.failure import rank_error
from tnt_notebook.errors import (
    MeshError,
    ModelError,
    ScheduleError,
    StudyError,
    TntError,
)
from tnt_notebook.plan.fit_options import FitOptions
from tnt_notebook.protocol import Call, Published
from tnt_notebook.telemetry import Frame, State, archive
from tnt_notebook.telemetry.kept_ribbon import Known
from tnt_notebook.telemetry.scaling import Measured, Mode, Question, Run, run_of, unfit
from tnt_notebook.words import number


def check(cluster: Ranks, question: Question) -> None:
    """Refuses what the cluster cannot do; nothing has begun.

    Raises:
        StudyError: more ranks than there are, or pipelines that they cannot form.
    """
    there = len(cluster.living)
    if question.ranks[-1] > there:
        raise StudyError(
            f"--ranks {','.join(map(str, question.ranks))}: the cluster has {there} "
            f"{number(there, 'rank', 'ranks')}. Name fewer, or start more: %tnt_cluster start -n "
            f"{question.ranks[-1]}"
        )
    for ranks in question.ranks:
        try:
            FitOptions.of(question.options).mesh_of(ranks)
        except (MeshError, ScheduleError) as error:
            raise StudyError(f"--ranks {ranks}: {error}") from None


def measure(
    cluster: Ranks,
    cell: str,
    found: Measured,
    tell: Callable[[str], None],
    changed: Callable[[], None],
) -> None:
    """Does the whole study, in the calling thread. Ctrl-C ends it in a few steps.

    Args:
        cell: ordinary Keras code.
        found: with the question; gets what is measured, which stays where something fails later.
        tell: called with a line of progress.
        changed: called when ``found`` has another run.

    Raises:
        StudyError: the cell does not scale as it is asked for.
        RankError: the cell raised, or was interrupted.
        DeathError: ranks died.
    """
    check(cluster, found.question)
    began = time.monotonic()
    try:
        with cluster.queue.turn(tell) as engines:
            _Course(cluster, engines, cell, found, tell, changed).run()
        found.complete = True
    finally:
        found.took_s = time.monotonic() - began


class _Course:
    """Rounds, and in each a turn for each number of ranks and mode."""

    def __init__(
        self,
        cluster: Ranks,
        engines: Engines,
        cell: str,
        found: Measured,
        tell: Callable[[str], None],
        changed: Callable[[], None],
    ) -> None:
        self._cluster, self._engines, self._cell = cluster, engines, cell
        self._question, self._found = found.question, found
        self._tell, self._changed = tell, changed
        self._ranks = engines.living

    def run(self) -> None:
        tell = self._tell
        tell("asking the ranks what they run on")
        most = self._ranks[: self._question.ranks[-1]]
        answers = self._call(most, Call.MACHINE)
        self._found.machine = [answers[rank] for rank in most]
        try:
            for round in range(1, self._question.rounds + 1):
                for ranks, mode in self._question.turns():
                    self._turn(ranks, mode, round)
        finally:
            self._end(most)

    def _turn(self, ranks: int, mode: Mode, round: int) -> None:
        question, found = self._question, self._found
        group = self._ranks[:ranks]
        where = f"round {round} of {question.rounds}: {number(ranks, 'rank', f'{ranks} ranks')}"
        line = f"{where.replace('rank', '1 rank', 1) if ranks == 1 else where}, {mode}"
        self._tell(line)
        groups.divide(self._cluster.queue, self._engines, [group])
        run = self._fit(group, mode, round, line)
        if why := unfit(run, found.runs, question):
            raise StudyError(
                f"{why}. Only batches of arrays can be made larger, those of a dataset are made in "
                "the cell: .batch(64) is for strong scaling, and for weak scaling "
                ".batch(64 * tnt.world().size), with --weak alone."
            )
        found.runs.append(run)
        self._changed()
        if round == 1:
            self._expect(group, run, mode)

    def _fit(self, group: Sequence[int], mode: Mode, round: int, line: str) -> Run:
        question, ranks = self._question, len(group)
        larger = (ranks, question.least) if mode == "weak" else (1, 1)
        changes = {"batches": larger, "steps": question.steps}
        title = f"scaling-{ranks}-{mode}"
        folder = archive.new_folder(title)
        options = {**question.options, "fit_as": changes}
        kept = {
            "title": title, "folder": str(folder), "kernel": os.getpid(),
            "options": {**question.options, "mode": mode}, "ranks": ranks,
        }  # fmt: skip
        watch = _Watch(question, lambda said: self._tell(f"{line}: {said}"))
        state, error = "failed", ""
        try:
            execution = self._begun(group, watch.take, Call.RUN_STUDY, self._cell, options, kept)
            watch.execution = execution
            self._follow(execution)
            run = run_of(watch.frames, ranks, mode, round, question, watch.first_step_s)
            if run is None:
                raise ModelError(
                    "The last fit of the cell has fewer than two steps in an epoch, and the first "
                    "one of an epoch does not count: give it more data, or smaller batches."
                )
            state = "finished"
        except TntError as failure:
            error = str(failure).partition("\n")[0]
            raise
        finally:
            ended: State = "finished" if state == "finished" else "failed"
            known = Known(began=watch.began, ended=time.time(), marks=[])
            archive.conclude(folder, ended, error, known)
        return run

    def _expect(self, group: Sequence[int], run: Run, mode: Mode) -> None:
        """Asks what was to be expected of such a run."""
        found = self._found
        if found.unplanned:
            return
        takes = number(len(group), "takes", "take")
        self._tell(f"planning, and measuring what {ranks_label(group)} {takes} for a step")
        plan = self._call(group, Call.EXPECT, self._question.options, run.batch)[group[0]]
        if "refused" in plan:
            found.unplanned = plan["refused"]
        else:
            found.plans[len(group), mode] = plan["plans"][0]

    def _end(self, most: Sequence[int]) -> None:
        """Lets go what the study has kept on ranks that live."""
        there = [rank for rank in most if rank in self._engines.living]
        queue = self._cluster.queue
        queue.needs_recovery = True
        try:
            if there and queue.running is None and not queue.closed:
                self._call(there, Call.FORGET_STUDY)
        except TntError as error:  # they are to be told of, and not to hide what came before
            self._tell(f"{ranks_label(there)}: {error}")

    # Requests ---------------------------------------------------------------------------------

    def _call(self, group: Sequence[int], call: Call, *arguments: Any) -> dict[int, Any]:
        execution = self._begun(group, lambda data: None, call, *arguments)
        self._follow(execution)
        return execution.answers

    def _begun(self, group: Sequence[int], on_data: Any, call: Call, *arguments: Any) -> Execution:
        return groups.begin(
            self._engines, group, call, *arguments, on_data=on_data, on_tick=lambda: None
        )

    def _follow(self, execution: Execution) -> None:
        self._cluster.queue.follow(execution)
        if execution.failures:
            raise rank_error(execution.failures)


class _Watch:
    """The frames of a fit as they come; ends it when it has reached its target."""

    def __init__(self, question: Question, tell: Callable[[str], None]) -> None:
        self.frames: list[Frame] = []
        self.first_step_s = 0.0
        self.began = time.time()
        self.execution: Execution | None = None
        self._begun = time.monotonic()
        self._question, self._tell = question, tell
        self._solved = False

    def take(self, data: dict[str, Any]) -> None:
        frame: Frame | None = data.get(Published.FRAME)
        if frame is None or frame["phase"] != "fit":
            return
        self.frames.append(frame)
        if not self.first_step_s and frame["step"]:
            self.first_step_s = time.monotonic() - self._begun
        if frame["state"] != "running":
            return
        steps = f" of {frame['steps']}" if frame["steps"] else ""
        self._tell(f"epoch {frame['epoch']} of {frame['epochs']}, step {frame['step']}{steps}")
        until = self._question.until
        if until is not None and any(map(until.reached, frame.get("rows", []))):
            self._solved = True
        if self._solved and self.execution is not None:
            self.execution.request_stop()
