"""The study of a sweep: Optuna chooses settings, and is told what came of them."""

from __future__ import annotations

import contextlib
import fcntl
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from tnt_notebook import files
from tnt_notebook.errors import SweepError
from tnt_notebook.sweep.space import Range, Setting, Task

if TYPE_CHECKING:
    import optuna

_NAME = "tnt_sweep"
_MISSING = "Sweeps need Optuna: pip install 'tnt_notebook[sweep]', or pip install optuna cmaes."
#: Trials, by number, that somebody or something has ended before their end; and of which the
#: settings have been put into the queue again.
_CUT, _AGAIN = "cut", "again"


class Asked(NamedTuple):
    """A trial that is to be run."""

    number: int
    settings: dict[str, Any]


class Study:
    """Of one sweep; any thread may ask and tell.

    Args:
        task: that was checked.

    Attributes:
        optuna: the study itself, of Optuna.
        said: what there is to say of the trials that a file held.

    Raises:
        SweepError: there is no Optuna, or the file is in use, or holds another sweep.
    """

    def __init__(self, task: Task, cell: str = "") -> None:
        try:
            import optuna
        except ImportError as error:
            raise SweepError(_MISSING) from error
        self.said = ""
        self._task = task
        self._lock = threading.RLock()
        self._running: dict[int, optuna.Trial] = {}
        self._distributions = {name: _distribution(s) for name, s in task.space.items()}
        self._closing = contextlib.ExitStack()
        try:
            with _quiet():
                self.optuna = optuna.create_study(
                    storage=None if task.file is None else self._storage(),
                    sampler=_sampler(task),
                    pruner=_pruner(task),
                    study_name=_NAME,
                    direction="maximize" if task.objective.maximise else "minimize",
                    load_if_exists=True,
                )
            self._go_on(cell)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Lets others have the file."""
        self._closing.close()

    @property
    def trials(self) -> list[optuna.trial.FrozenTrial]:
        """All that were begun."""
        with self._lock:
            begun = self.optuna.get_trials(deepcopy=False)
        return [trial for trial in begun if trial.state.name != "WAITING"]

    @property
    def best(self) -> optuna.trial.FrozenTrial | None:
        """The best of those that came to their end; None as long as there is none."""
        done = [trial for trial in self.trials if trial.state.name == "COMPLETE"]
        sign = 1 if self._task.objective.maximise else -1
        return max(done, key=lambda trial: sign * trial.values[0], default=None)

    @property
    def cut(self) -> set[int]:
        """Trials, by number, that were ended before their end by that of the sweep."""
        return self._marked(_CUT)

    @property
    def counted(self) -> int:
        """How many trials have ended or are running, without those that were cut off."""
        return len({trial.number for trial in self.trials} - self.cut)

    def ask(self) -> Asked | None:
        """The next trial; None when there are enough."""
        with self._lock, _quiet():
            if self.counted >= self._task.trials:
                return None
            if self._task.sampler == "grid":
                self.optuna.enqueue_trial(self._next_point())
            trial = self.optuna.ask(self._distributions)
            self._running[trial.number] = trial
        return Asked(trial.number, dict(trial.params))

    def _next_point(self) -> dict[str, Any]:
        """The first of the grid that was not tried, or was cut off."""
        names, cut = list(self._task.space), self.cut
        tried = {
            tuple(trial.params[name] for name in names)
            for trial in self.trials
            if trial.number not in cut
        }
        return next(point for point in self._task.grid() if tuple(point.values()) not in tried)

    def report(self, number: int, epoch: int, value: float) -> bool:
        """Tells the objective after an epoch of a trial; whether the trial is to be pruned."""
        with self._lock, _quiet():
            trial = self._running[number]
            trial.report(value, epoch)
            return trial.should_prune()

    def tell(self, number: int, state: str, value: float | None, **known: Any) -> None:
        """Tells the end of a trial.

        Args:
            state: as of a :class:`tnt_notebook.sweep.board.Row`; ``complete`` has a finite value,
                ``cut off`` counts as not done.
            known: what else is kept of it, values for JSON.
        """
        import optuna

        # Who stops a trial has seen enough of it, as a pruner has.
        states = {"complete": "COMPLETE", "pruned": "PRUNED", "stopped": "PRUNED"}
        with self._lock, _quiet():
            trial = self._running.pop(number)
            for name, said in {"state": state, **known}.items():
                trial.set_user_attr(name, said)
            if state == "cut off":
                self._mark(_CUT, number)
            found = optuna.trial.TrialState[states.get(state, "FAIL")]
            if found.name == "PRUNED" and not self.optuna.trials[number].intermediate_values:
                found = optuna.trial.TrialState.FAIL
            self.optuna.tell(trial, value if found.name == "COMPLETE" else None, state=found)

    def again(self, number: int) -> None:
        """Has the settings of a trial that was cut off tried once more."""
        if self._task.sampler == "grid":
            return  # they are what is left of it
        with self._lock:
            self.optuna.enqueue_trial(dict(self.optuna.trials[number].params))
            self._mark(_AGAIN, number)

    def _marked(self, name: str) -> set[int]:
        return {*self.optuna.user_attrs.get(name, ())}

    def _mark(self, name: str, number: int) -> None:
        self.optuna.set_user_attr(name, sorted({*self._marked(name), number}))

    # A study that is kept ---------------------------------------------------------------------

    def _storage(self) -> optuna.storages.BaseStorage:
        from optuna.storages import JournalStorage
        from optuna.storages.journal import JournalFileBackend

        path = self._task.file
        assert path is not None
        try:
            # Nobody else may read what cells are about; and one sweep at a time writes.
            file = open(path, "ab", opener=files.private)  # noqa: SIM115  closed by close()
            self._closing.callback(file.close)
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise SweepError(
                f"{path}: another sweep that still runs keeps its study there."
            ) from None
        except OSError as error:
            raise SweepError(f"{path}: a study cannot be kept there: {error.strerror}.") from None
        if not _is_journal(path):
            raise SweepError(f"{path} is not the study of a sweep: name another file.")
        return JournalStorage(JournalFileBackend(str(path)))

    def _go_on(self, cell: str) -> None:
        """Looks whether what the file holds is of this sweep, and repeats what was cut off."""
        if self._task.file is None:
            return
        known = self.optuna.user_attrs
        asked = _identity(self._task)
        if "task" not in known:
            self.optuna.set_user_attr("task", asked)
            self.optuna.set_user_attr("cell", cell)
            return
        if known["task"] != asked:
            raise SweepError(
                f"{self._task.file} holds another sweep, {' '.join(known['task'])}, and not "
                f"{' '.join(asked)}: name another file, or ask for the same."
            )
        self._repeat_cut()
        self.said = f"{self.counted} of {self._task.trials} trials are in {self._task.file}"
        if known.get("cell") != cell:
            self.said += ", of a cell that was changed since"

    def _repeat_cut(self) -> None:
        import optuna

        for trial in self.trials:
            if trial.state.name == "RUNNING":  # its notebook has ended
                self._mark(_CUT, trial.number)
                self.optuna.tell(trial.number, state=optuna.trial.TrialState.FAIL)
        for number in sorted(self.cut - self._marked(_AGAIN)):
            self.again(number)


def _is_journal(path: Path) -> bool:
    """Whether a file is empty, or begins as Optuna's do, a value of JSON in each line."""
    with open(path, "rb") as file:
        first = file.readline()
    try:
        return not first or "op_code" in json.loads(first)
    except (ValueError, TypeError):
        return False


def _identity(task: Task) -> list[str]:
    """What trials of one study have in common, as it is typed."""
    return [*(f"{name}={setting}" for name, setting in task.space.items()), str(task.objective)]


def _distribution(setting: Setting) -> optuna.distributions.BaseDistribution:
    from optuna import distributions as of

    if not isinstance(setting, Range):
        return of.CategoricalDistribution(setting.options)
    if setting.is_whole:
        step = 1 if setting.log else int(setting.step or 1)
        return of.IntDistribution(int(setting.low), int(setting.high), log=setting.log, step=step)
    low, high = float(setting.low), float(setting.high)
    if setting.step is not None and (values := setting.values()):
        high = values[-1]  # else Optuna would warn that steps do not come to the end
    return of.FloatDistribution(low, high, log=setting.log, step=setting.step)


def _sampler(task: Task) -> optuna.samplers.BaseSampler:
    from optuna import samplers

    if task.sampler == "tpe":
        # Trials that run count as bad: those beside them try something else.
        return samplers.TPESampler(seed=task.seed, constant_liar=True)
    if task.sampler == "cmaes":
        try:
            import cmaes  # noqa: F401  which Optuna loads at the second trial
        except ImportError as error:
            raise SweepError("The sampler cmaes needs its package: pip install cmaes.") from error
        return samplers.CmaEsSampler(seed=task.seed)
    return samplers.RandomSampler(seed=task.seed)


def _pruner(task: Task) -> optuna.pruners.BasePruner:
    from optuna import pruners

    return {
        "none": pruners.NopPruner,
        "median": pruners.MedianPruner,
        "hyperband": pruners.HyperbandPruner,
        "halving": pruners.SuccessiveHalvingPruner,
    }[task.pruner]()


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Inside, Optuna says nothing of what it does: the board shows it."""
    from optuna import logging

    before = logging.get_verbosity()
    logging.set_verbosity(logging.ERROR)
    try:
        yield
    finally:
        logging.set_verbosity(before)
