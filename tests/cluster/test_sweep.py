"""Sweeps on real ranks: parts of a cluster train at the same time, each as a world of its own."""

import os
import signal
import threading
from typing import Any

import pytest

from tests.support.waiting import eventually
from tnt_notebook.cluster import Cluster, Sweep
from tnt_notebook.cluster.requests.groups import groups_of
from tnt_notebook.errors import ModelError, RankError, SweepError
from tnt_notebook.sweep.space import Choice, Objective, Range, Task

CELL = """
import keras, numpy as np
keras.utils.set_random_seed(1)
x = np.random.default_rng(1).random((48, 8), "float32")
model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(width, "tanh"), keras.layers.Dense(1)])
model.compile(keras.optimizers.SGD(rate), "mse")
def each_epoch(epoch, logs): pass
follow = keras.callbacks.LambdaCallback(on_epoch_end=lambda epoch, logs: each_epoch(epoch, logs))
model.fit(x, x.sum(1), batch_size=16, epochs=2, validation_split=0.25, callbacks=[follow])
"""  # noqa: E501
#: Epochs that last until somebody ends them; and are judged by `width` at once.
ENDLESS = (
    CELL.replace("epochs=2", "epochs=100_000")
    .replace("logs): pass", "logs): logs['score'] = float(width)")
    .replace("rate", "0.1")
)  # fmt: skip
LOSS = Objective("val_loss", maximise=False)
SCORE = Objective("score", maximise=True)
GRID = {"width": Choice((2, 4)), "rate": Choice((0.01, 0.1))}
WAIT_S = 240.0


def task(space: dict[str, Any], objective: Objective = LOSS, **more: Any) -> Task:
    asked = Task(space, objective, **{"trials": 100, "sampler": "grid", **more})
    return Task(**{**vars(asked), "trials": min(asked.trials, asked.points())})


def test_groups_are_of_one_host_as_far_as_they_go():
    hosts = dict(enumerate("aaabbb"))
    assert groups_of(range(6), hosts, 2) == [[0, 1], [3, 4], [2, 5]]
    assert groups_of([0, 2, 3, 5], hosts, 2) == [[0, 2], [3, 5]]
    assert groups_of(range(6), hosts, 4) == [[0, 1, 2, 3]]
    assert groups_of(range(3), hosts, 4) == []


def test_trials_give_what_a_fit_gives_and_leave_nothing(pair: Cluster):
    pair.run("width = 'mine'")
    sweep = pair.sweep(CELL, task(GRID)).wait(WAIT_S)
    assert sweep.state == "finished" and sweep.error is None
    frame = sweep.frame()
    assert list(frame.columns[:5]) == ["trial", "width", "rate", "state", "val_loss"]
    assert set(frame["state"]) == {"complete"} and {*map(tuple, frame["ranks"])} == {(0,), (1,)}
    assert (frame["epoch"] == 2).all() and (frame["step_s"] > 0).all()
    best = frame.loc[frame["val_loss"].idxmin()]
    assert sweep.best.settings == {"width": best["width"], "rate": best["rate"]}
    assert sweep.study.best_value == sweep.best.value == best["val_loss"]
    # All ranks together, with the same batch: the same result.
    set_before = CELL.replace("import keras", "width, rate = 4, 0.1\nimport keras")
    fit = pair.fit(set_before, {}).wait(WAIT_S)
    row = frame[(frame["width"] == 4) & (frame["rate"] == 0.1)].iloc[0]
    assert row["val_loss"] == pytest.approx(fit.history["val_loss"][-1], rel=1e-5)
    pair.run("assert width == 4 and 'rate' in globals()")  # those of the fit
    pair.run("del model, width, rate")
    pair.sweep(CELL, task(GRID, trials=1)).wait(WAIT_S)
    pair.run("assert not {'model', 'width', 'rate'} & {*globals()}")


def test_trials_train_as_fits_do(cluster: Cluster, tmp_path):
    """In two stages, with checkpoints of their own."""
    options = {
        "pipeline": {"stages": 2, "micro_batches": 2},
        "checkpoint": {"folder": str(tmp_path), "every_s": None},
    }
    space = {"width": Choice((2, 4)), "rate": Choice((0.1,))}
    sweep = cluster.sweep(CELL, task(space, each=2, options=options)).wait(WAIT_S)
    assert sweep.error is None and set(sweep.frame()["state"]) == {"complete"}
    for trial in (0, 1):
        assert any((tmp_path / f"trial-{trial}").iterdir())
    set_before = CELL.replace("import keras", "width, rate = 4, 0.1\nimport keras")
    fit = cluster.fit(set_before, {}).wait(WAIT_S)
    found = sweep.frame().set_index("width").loc[4, "val_loss"]
    assert found == pytest.approx(fit.history["val_loss"][-1], rel=1e-5)


def test_a_group_is_a_world_and_an_expression_can_judge(cluster: Cluster):
    cell = "import tnt_notebook as tnt\n" + CELL + "\nworld = tnt.world()"
    objective = Objective("size", True, expression="world.allreduce(np.ones(1))[0] * width")
    sweep = cluster.sweep(cell, task(GRID, objective, each=2, trials=3))
    sweep.wait(WAIT_S)
    assert [(row.value, row.ranks) for row in sweep.board.rows] == [
        (4.0, [0, 1]), (4.0, [0, 1]), (8.0, [0, 1]),
    ]  # fmt: skip
    assert sweep.board.notes == ["rank 2 is left over: trials have 2 each."]
    cluster.run("import tnt_notebook as tnt; assert tnt.world().size == 3")
    with pytest.raises(SweepError, match="--each 4: the cluster has 3 ranks"):
        cluster.sweep(cell, task(GRID, each=4))


def test_what_no_trial_could_do_ends_the_sweep(pair: Cluster):
    sweep = pair.sweep(CELL, task(GRID, Objective("f1", True)))
    with pytest.raises(ModelError, match="does not report f1. It reports loss, val_loss: name"):
        sweep.wait(WAIT_S)
    assert sweep.state == "failed" and len(sweep.board.rows) == 2
    sweep = pair.sweep("width, rate\n1 / 0", task(GRID))
    with pytest.raises(RankError, match="ZeroDivisionError"):
        sweep.wait(WAIT_S)
    assert "line 2 of the cell: 1 / 0" in sweep.board.error and "1 / 0" not in sweep.unseen
    # A list is no number; one setting that fails is no fault of the cell.
    expression = Objective("list", True, expression="[1] if width == 2 else 3")
    sweep = pair.sweep(CELL, task({"width": Choice((2, 4)), "rate": Choice((1.0,))}, expression))
    sweep.wait(WAIT_S)
    first, second = sweep.board.rows
    assert (first.state, second.state, second.value) == ("failed", "complete", 3.0)
    assert "the value of '[1] if width == 2 else 3' is not a number" in first.error


def test_a_person_ends_one_or_all_and_a_file_goes_on(pair: Cluster, tmp_path):
    space = {"width": Range(1, 8)}
    asked = task(space, SCORE, trials=4, file=tmp_path / "a.journal")
    sweep = pair.sweep(ENDLESS, asked)
    eventually(lambda: len([row for row in running(sweep, 2) if row.epoch]) == 2)
    sweep.stop(0)
    eventually(lambda: 2 in [row.number for row in running(sweep, 2)])
    with pytest.raises(ValueError, match="trial 0 of sweep does not run"):
        sweep.stop(0)
    eventually(lambda: [row.state for row in pair.status()] == ["busy", "busy"])
    assert pair.busy
    sweep.stop()
    sweep.wait(300)
    assert sweep.state == "stopped"
    assert [row.state for row in sweep.board.rows] == ["stopped", "cut off", "cut off"]
    ended = ENDLESS.replace("100_000", "1")
    again = pair.sweep(ended, asked).wait(WAIT_S)
    assert again.state == "finished"
    assert [row.state for row in again.board.rows[3:]] == ["complete"] * 3
    assert [row.settings["width"] for row in again.board.rows] == [1, 2, 3, 2, 3, 4]


def running(sweep: Sweep, wanted: int) -> list[Any]:
    """The rows of trials that run, when there are so many."""
    rows = [row for row in sweep.board.rows if row.state == "running"]
    return rows if len(rows) == wanted else []


@pytest.mark.thorough
def test_trials_that_are_worse_are_pruned(pair: Cluster):
    # Five that end at once tell the pruner what is usual, the last would never end.
    cell = ENDLESS.replace("100_000", "(1 if width < 6 else 100_000)")
    cell = cell.replace("float(width)", "-float(width)")
    asked = task({"width": Range(1, 6)}, SCORE, pruner="median", each=2)
    sweep = pair.sweep(cell, asked).wait(WAIT_S)
    assert [row.state for row in sweep.board.rows] == ["complete"] * 5 + ["pruned"]
    assert sweep.board.rows[5].value == -6.0 and sweep.best.settings == {"width": 1}


def test_its_time_is_over(pair: Cluster):
    sweep = pair.sweep(ENDLESS, task({"width": Range(1, 6)}, SCORE, timeout_s=1.0)).wait(300)
    assert sweep.state == "stopped" and sweep.error is None
    assert sweep.board.notes == ["Its time is over: what ran was stopped."]
    assert {row.state for row in sweep.board.rows} == {"cut off"}


def test_an_abort_ends_trials_amid_a_call(pair: Cluster, tmp_path):
    wait = f"open(f'{tmp_path}/{{width}}', 'w'); __import__('time').sleep(600); logs['score']"
    sweep = pair.sweep(ENDLESS.replace("logs['score']", wait), task({"width": Range(1, 6)}, SCORE))
    eventually(lambda: len(os.listdir(tmp_path)) == 2)
    sweep.abort()
    sweep.wait(300)
    assert sweep.state == "stopped" and {r.state for r in sweep.board.rows} == {"cut off"}
    pair.run("import tnt_notebook as tnt; assert tnt.world().gather_numbers(1) == [1, 1]")


#: The first three trials wait, so that a rank dies before others have done the rest; not for ever,
#: where the test fails before it opens the gate.
GATE = """
import os, time
end = time.monotonic() + 60
while width < 4 and os.path.exists({!r}) and time.monotonic() < end: time.sleep(0.01)
"""


def test_a_rank_that_dies_fails_its_trial_only(cluster: Cluster):
    """Two groups go on; then the rank is started again, and three do the rest."""
    gate = cluster.folder.path / "gate"
    gate.touch()
    cell = GATE.format(str(gate)) + CELL.replace("rate", "0.1")
    sweep = cluster.sweep(cell, task({"width": Range(1, 7)}))
    eventually(lambda: running(sweep, 3))
    dies = sweep.board.rows[1].ranks[0]
    killer = threading.Thread(target=os.kill, args=(cluster.status()[dies].pid, signal.SIGKILL))
    killer.start()
    killer.join()
    eventually(lambda: sweep.board.rows[1].error)
    assert len(running(sweep, 2)) == 2
    gate.unlink()
    sweep.wait(WAIT_S)
    rows = sweep.board.rows
    assert [row.state for row in rows] == ["complete", "failed", *["complete"] * 5]
    assert rows[1].error.startswith(f"rank {dies} died on ") and "SIGKILL" in rows[1].error
    assert sweep.board.notes == [f"rank {dies} was started again."]
    assert any(row.ranks == [dies] for row in rows[3:])
    assert all(row.state == "idle" for row in cluster.status())


def test_a_rank_that_lacks_names_is_left_out(cluster: Cluster):
    cluster.run("mine = 3")
    gate = cluster.folder.path / "gate"
    gate.touch()
    dies = "\nimport os, signal\nif width == 2: os.kill(os.getpid(), signal.SIGKILL)\nmine\n"
    cell = dies + GATE.format(str(gate)) + CELL.replace("rate", "0.1")
    sweep = cluster.sweep(cell, task({"width": Range(1, 6)}))
    eventually(lambda: len(sweep.board.rows) == 3 and sweep.board.rows[1].error)
    gate.unlink()
    sweep.wait(WAIT_S)
    dead = sweep.board.rows[1].ranks[0]
    by_state = {row.state for row in sweep.board.rows}
    assert by_state == {"complete", "failed", "cut off"}
    (cut,) = (row for row in sweep.board.rows if row.state == "cut off")
    assert cut.ranks == [dead] and "NameError" in cut.error
    assert sum(row.state == "complete" for row in sweep.board.rows) == 5  # its settings, too
    assert f"rank {dead} is left out: rank {dead} died, with all names" in sweep.board.notes[1]
