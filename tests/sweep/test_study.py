"""Optuna chooses, and is told; in memory and in a file. Without ranks."""

import itertools
import json
from dataclasses import replace
from pathlib import Path

import pytest

from tnt_notebook.errors import SweepError
from tnt_notebook.sweep.results import row_of
from tnt_notebook.sweep.space import PRUNERS, SAMPLERS, Choice, Objective, Range, Task
from tnt_notebook.sweep.study import Study

LOSS = Objective("val_loss", maximise=False)
NUMBERS = {"rate": Range(1e-4, 1e-1, log=True), "depth": Range(1, 4), "drop": Range(0.0, 0.5)}


def run(study: Study, value=lambda settings: settings["depth"]) -> list[dict]:
    """Asks until there are enough; the settings."""
    found = []
    while (asked := study.ask()) is not None:
        found.append(asked.settings)
        study.tell(asked.number, "complete", float(value(asked.settings)))
    return found


@pytest.mark.parametrize("sampler", [name for name in SAMPLERS if name != "grid"])
def test_each_sampler_stays_within_the_space(sampler):
    task = Task(NUMBERS, LOSS, trials=12, sampler=sampler, seed=1)
    task.check()
    found = run(study := Study(task))
    assert len(found) == 12
    for settings in found:
        assert 1e-4 <= settings["rate"] <= 1e-1 and 0 <= settings["drop"] <= 0.5
        assert settings["depth"] in (1, 2, 3, 4)
    assert study.best.values[0] == min(settings["depth"] for settings in found)
    assert run(Study(task)) == found  # by the seed


def test_a_grid_is_all_combinations():
    space = {
        "width": Choice((64, 128)),
        "drop": Range(0.0, 0.3, step=0.1),
        "act": Choice(("a", "b")),
    }
    task = Task(space, LOSS, trials=100, sampler="grid")
    task = replace(task, trials=task.points())
    found = run(Study(task), value=lambda settings: settings["width"])
    every = itertools.product((64, 128), (0.0, 0.1, 0.2, 0.3), "ab")
    assert [tuple(settings.values()) for settings in found] == list(every)


@pytest.mark.parametrize("pruner", [*PRUNERS])
def test_what_is_worse_at_the_same_epoch_is_pruned(pruner):
    study = Study(Task(NUMBERS, LOSS, trials=100, pruner=pruner, seed=1))
    for loss in range(40):
        asked = study.ask()
        for epoch in range(1, 10):
            study.report(asked.number, epoch, loss / epoch)
        study.tell(asked.number, "complete", loss / 9)
    pruned = []
    for _ in range(8):
        worst = study.ask()
        pruned.append(any(study.report(worst.number, epoch, 1000.0) for epoch in range(1, 10)))
        study.tell(worst.number, "pruned" if pruned[-1] else "complete", 1000.0)
    assert any(pruned) == (pruner != "none")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"sampler": "cmaes", "space": {**NUMBERS, "act": Choice(("a", "b"))}}, "act is a choice"),
        ({"sampler": "cmaes", "space": {"depth": Range(1, 4)}}, "needs two settings"),
        ({"sampler": "grid"}, "rate, drop has no end of them"),
        ({"sampler": "grid", "space": {"a": Range(0, 400), "b": Range(0, 400)}}, "160,801 points"),
        ({"pruner": "median", "objective": Objective("f1", True, expression="f1")}, "--value"),
    ],
)
def test_what_cannot_be_is_refused(change, message):
    task = Task(**{"space": NUMBERS, "objective": LOSS, "trials": 9, **change})
    with pytest.raises(SweepError, match=message):
        task.check()


def test_a_file_goes_on_where_it_was(tmp_path: Path):
    task = Task(NUMBERS, LOSS, trials=5, seed=1, file=tmp_path / "a.journal")
    study = Study(task, "the cell")
    done, stopped, cut, lost = (study.ask() for _ in range(4))
    study.tell(done.number, "complete", 2.0, ranks=[0, 1], epoch=3, reached=2.0)
    study.report(stopped.number, 1, 3.0)
    study.tell(stopped.number, "stopped", 3.0)
    study.tell(cut.number, "cut off", None)
    with pytest.raises(SweepError, match=r"a\.journal: another sweep that still runs"):
        Study(task, "the cell")
    study.close()  # as when its process ends: one trial ran
    again = Study(task, "another cell")
    assert again.said.startswith("2 of 5 trials are in ") and "changed since" in again.said
    rows = [row_of(trial, trial.number in again.cut) for trial in again.trials]
    assert [row.state for row in rows] == ["complete", "stopped", "cut off", "cut off"]
    assert (rows[0].ranks, rows[0].value, rows[0].epoch) == ([0, 1], 2.0, 3)
    first, second, *_ = run(again)
    assert (first, second) == (cut.settings, lost.settings)
    assert again.counted == 5 and again.best.number != lost.number
    again.close()
    third = Study(task, "another cell")
    assert third.ask() is None
    third.close()
    assert (tmp_path / "a.journal").stat().st_mode & 0o077 == 0


def test_a_file_of_something_else_is_refused(tmp_path: Path):
    file = tmp_path / "a.journal"
    Study(Task(NUMBERS, LOSS, trials=5, file=file)).close()
    more = {**NUMBERS, "depth": Range(1, 5)}
    with pytest.raises(
        SweepError, match=r"another sweep, .*depth=1\.\.4 .* and not .*depth=1\.\.5"
    ):
        Study(Task(more, LOSS, trials=5, file=file))
    for text in ("hello\n", json.dumps([1]) + "\n"):
        (tmp_path / "b").write_text(text)
        with pytest.raises(SweepError, match="b is not the study of a sweep"):
            Study(Task(NUMBERS, LOSS, trials=5, file=tmp_path / "b"))
        assert (tmp_path / "b").read_text() == text
    with pytest.raises(SweepError, match="cannot be kept there: No such file"):
        Study(Task(NUMBERS, LOSS, trials=5, file=tmp_path / "no" / "b"))
