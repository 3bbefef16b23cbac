"""``%tnt_bench training``, from its line to its report."""

from pathlib import Path

import pytest

from tests.magics.notebook import PLOTLY, ended, shown
from tests.magics.test_commands import typed
from tests.support.cells import TRAIN
from tnt_notebook.magics.training_magic import target
from tnt_notebook.plan.fit_options import typed_so
from tnt_notebook.telemetry.scaling import Target

CELL = TRAIN.format(epochs=2)


#: Of each line, what it says.
REFUSED = {
    "--ranks 0,2": "UsageError: --ranks: how many, 1 or more, as in 1,2,4",
    "--ranks 2": "UsageError: --ranks 2: at least two numbers, to compare: 1,2,4",
    "--ranks 1,2,4": "StudyError: --ranks 1,2,4: the cluster has 2 ranks.",
    "--ranks 1,2 --pipeline 2": "StudyError: --ranks 1: 1 rank cannot form pipelines of 2 stages",
    "--ranks 1,2 --mesh model=2": "StudyError: --ranks 1: The mesh model=2 needs a multiple of 2",
    "--rounds 0": "UsageError: --rounds must be at least 1, not 0",
    "--steps 1": "UsageError: --steps must be at least 2, not 1",
    "--steps 9 --until loss=0.1": "UsageError: --steps: not with --until, which already sets",
    "--until loss": "argument --until: 'loss': write METRIC=VALUE, as val_accuracy=0.9",
    "--exchange late:step=1": "late has no option 'step=1', it takes steps=...",
    "--watts -1": "UsageError: --watts -1: a rank needs more than 0 watts",
    "--force": "UsageError: --force: only with --report",
    "--report there.html": "UsageError: --report there.html: it is there; --force replaces",
    "--report no/a.html": "UsageError: --report no/a.html: there is no folder",
    "--max-mb 3": "UsageError: --max-mb goes with allreduce only",
    "mlp": "UsageError: mlp: the cell has the code, so there is nothing to name",
    "--name 3x": "UsageError: --name 3x: a variable cannot have this name",
}


def test_what_cannot_be_is_refused_before_anything_begins(shell_with_ranks, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "there.html").touch()
    for line, message in REFUSED.items():
        assert message in typed(shell_with_ranks, f"%%tnt_bench training {line}\n{CELL}"), line


def test_a_study_in_a_cell_and_its_report(shell_with_ranks, tmp_path: Path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shell = shell_with_ranks
    named = typed(shell, "%tnt_bench training --ranks 1,2")
    assert "UsageError: there is no cell to train: begin one with %%tnt_bench training" in named
    assert "other: name a fit of this notebook, as fit, or one of mlp, " in typed(
        shell, "%tnt_bench training --ranks 1,2 other"
    )
    assert "takes no cell: %tnt_bench rules" in typed(shell, "%%tnt_bench rules\n1")

    line = "%%tnt_bench training --ranks 1,2 --rounds 1 --watts 5 --report a.html --name study"
    text = typed(shell, f"{line}\n{CELL}")
    study = shell.user_ns["study"]
    assert text.splitlines()[0].startswith("3 fits measured in ")
    assert "strong and weak scaling on 1, 2 ranks: medians of 1 fit each" in text
    assert text.splitlines()[-1] == f"The report is {tmp_path / 'a.html'}"
    rows = {(row["mode"], row["ranks"]): row for row in study.rows}
    assert set(rows) == {(mode, ranks) for mode in ("strong", "weak") for ranks in (1, 2)}
    batches = {key: row["batch"] for key, row in rows.items()}
    assert batches == {("strong", 1): 32, ("strong", 2): 32, ("weak", 1): 32, ("weak", 2): 64}
    for (mode, ranks), row in rows.items():
        base = rows[mode, 1]
        ratio = row["samples_per_s"] / base["samples_per_s"] / ranks
        assert row["efficiency"] == pytest.approx(ratio, rel=1e-6)
        assert row["samples_per_s"] == pytest.approx(row["batch"] * row["steps_per_s"], rel=1e-6)
        assert row["solution_s"] > 0 and row["first_step_s"] > 0 and row["limit"]
        assert row["expected_efficiency"] > 0 and row["energy"] in ("estimate", "counted")
    report = (tmp_path / "a.html").read_text(encoding="utf-8")
    assert "%%tnt_bench training --ranks 1,2 --rounds 1 --watts 5\nimport keras" in report
    assert "2 on 1 host" in report and study.runs[0]["logs"]["loss"] > 0
    turns = {(1, "strong"): 32, (2, "strong"): 32, (2, "weak"): 64}
    assert {turn: plan.batch_size for turn, plan in study.plans.items()} == turns
    of_two = study.plans[2, "strong"]
    assert (of_two.replicas, of_two.micro_batches) == (2, 1) and of_two.exchange_s > 0
    assert of_two.beside_s > 0 and not study.found.unplanned


def test_what_was_typed_of_a_fit_is_typed_again():
    assert typed_so({
        "exchange": "late:steps=2", "mesh": "data=2,model=2", "memory_limit": "4GB",
        "layouts": {"dense.*": {"columns": "model"}}, "pipeline": {"stages": 2, "recompute": True},
    }) == [
        "--exchange late:steps=2", "--mesh data=2,model=2", "--layout dense.*:columns=model",
        "--pipeline 2", "--recompute", "--memory-limit 4GB",
    ]  # fmt: skip


def test_a_target_is_read_as_it_is_written():
    assert target("val_accuracy=0.9") == Target("val_accuracy", 0.9, maximise=True)
    assert target("val_loss=1e-3") == Target("val_loss", 1e-3, maximise=False)
    assert target("perplexity=20:min") == Target("perplexity", 20.0, maximise=False)


def test_a_notebook_keeps_table_and_figure_of_its_last_fit(notebook, tmp_path: Path):
    notebook.run(f"%%tnt_fit --wait\n{CELL.replace('epochs=2', 'epochs=9')}")
    line = "%tnt_bench training --ranks 1,2 --rounds 1 --strong --until loss=9 --report"
    line += " --pipeline 1 --micro-batches 2 --exchange late"
    messages = notebook.messages_until(notebook.begin(line), ended)
    text = shown(messages)
    assert "round 1 of 1: 1 rank, strong: epoch 1" in text and "time to loss <= 9" in text
    assert "measuring what ranks 0-1 take for a step" in text
    assert "--until loss=9:min" in notebook.run("bench.command")
    # As the cell trains: two of them are begun, forward and backward.
    assert "True" in notebook.run("bench.plans[2, 'strong'].losses.actions > 0")
    assert "2" in notebook.run("bench.plans[2, 'strong'].micro_batches")
    assert "'late'" in notebook.run("bench.plans[2, 'strong'].exchange")
    assert "[True, True]" in notebook.run("[row['solution_s'] > 0 for row in bench.rows]")
    assert "True" in notebook.run("bench.runs[1]['logs']['loss'] <= 9")
    rich = [m["content"] for m in messages if "transient" in m["content"]]
    (figure,) = [content for content in rich if PLOTLY in content["data"]]  # drawn once
    names = {trace.get("name") for trace in figure["data"][PLOTLY]["data"]}
    assert names >= {"measured", "planned", "ideal", "work"}
    tables = [content for content in rich if "<table" in content["data"].get("text/html", "")]
    assert len({table["transient"]["display_id"] for table in tables}) == 1
    assert len(tables) == 2 + 1  # it grows fit by fit
    assert len(list(tmp_path.glob("scaling-*.html"))) == 1  # of a new name
