"""A study of scaling on real ranks: what was measured is there, whatever happens later."""

import os
import signal
from pathlib import Path

import pytest

from tests.support.cells import TRAIN
from tnt_notebook.cluster import Cluster
from tnt_notebook.cluster.handles import scaling
from tnt_notebook.cluster.life import recovery
from tnt_notebook.errors import DeathError, RankError, StudyError
from tnt_notebook.plan.prediction import from_json
from tnt_notebook.telemetry.scaling import Measured, Question

CELL = TRAIN.format(epochs=2)
#: Once there is a file, it never ends; or kills a rank of two.
WAITS = """
import os, signal
import tnt_notebook as tnt
folder = {folder!r}
if os.path.exists(folder + "/dies") and tnt.world().rank == 1:
    os.kill(os.getpid(), signal.SIGKILL)
""" + TRAIN.format(epochs="(10**6 if os.path.exists(folder + '/waits') else 2)").replace(
    "{folder", "{{folder"
)  # fmt: skip


def test_more_than_there_is_is_refused_before_anything_begins(pair: Cluster):
    with pytest.raises(StudyError, match=r"--ranks 1,4: the cluster has 2 ranks. Name fewer, or "):
        scaling.check(pair, Question((1, 4)))
    pipeline = {"pipeline": {"stages": 2}}
    with pytest.raises(StudyError, match="--ranks 1: 1 rank cannot form pipelines of 2"):
        scaling.check(pair, Question((1, 2), options=pipeline))
    scaling.check(pair, Question((1, 2)))


def test_a_mesh_is_studied_with_its_plan(pair: Cluster):
    options = {"mesh": "model=1", "exchange": "late"}
    found = Measured(Question((1, 2), modes=("strong",), rounds=1, options=options))
    scaling.measure(pair, TRAIN.format(epochs=2), found, lambda line: None, lambda: None)
    assert [run.ranks for run in found.runs] == [1, 2] and found.complete
    assert not found.unplanned
    plans = [from_json(found.plans[ranks, "strong"]) for ranks in (1, 2)]
    assert [(plan.replicas, plan.parts, plan.exchange) for plan in plans] == [
        (1, 1, "late"), (2, 1, "late"),
    ]  # fmt: skip


def test_what_plans_do_not_know_is_studied_without_one(pair: Cluster):
    found = Measured(
        Question((1, 2), modes=("strong",), rounds=1, options={"exchange": "topk:ratio=0.5"})
    )
    scaling.measure(pair, TRAIN.format(epochs=2), found, lambda line: None, lambda: None)
    assert found.complete and not found.plans
    assert "Plans do not know what the exchange topk takes" in found.unplanned


def test_what_was_measured_outlives_an_interrupt_and_a_death(pair: Cluster, tmp_path: Path):
    cell, lines = WAITS.format(folder=str(tmp_path)), []
    question = Question((1, 2), modes=("strong",), rounds=9)
    found = Measured(question)

    def follow(line: str) -> None:
        began = "round 1 of 9: 2 ranks, strong: epoch 1"
        if line.startswith(began) and not any(said.startswith(began) for said in lines):
            os.kill(os.getpid(), signal.SIGINT)  # once: a second one would leave it running
        lines.append(line)

    with pytest.raises(RankError) as caught:
        scaling.measure(pair, cell, found, follow, (tmp_path / "waits").touch)
    assert caught.value.interrupted
    assert [(run.ranks, run.round) for run in found.runs] == [(1, 1)] and not found.unplanned
    assert "planning, and measuring what rank 0 takes for a step" in lines
    assert set(found.plans) == {(1, "strong")} and found.plans[1, "strong"]["batch_size"] == 32
    assert [one["links"] for one in found.machine] == ["shared memory"] * 2
    pair.run("import tnt_notebook as tnt; assert tnt.world().gather_numbers(1) == [1, 1]")
    pair.run("assert not {'model', 'folder'} & {*globals()}")

    (tmp_path / "waits").unlink()
    found = Measured(question)
    dies = (tmp_path / "dies").touch
    with pytest.raises(DeathError, match="rank 1 died on .*SIGKILL"):
        scaling.measure(pair, cell, found, lambda line: None, dies)
    assert [run.ranks for run in found.runs] == [1] and not found.complete
    recovery.start_missing(pair)
