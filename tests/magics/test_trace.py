"""``%tnt_trace``: runs that are kept, as a person types it; and what survives a killed kernel."""

import json
import os
import re
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.magics.notebook import PLOTLY, TRAIN, ended, shown
from tests.magics.test_commands import typed
from tests.magics.test_completion import completed
from tests.magics.test_kernel import cluster_id
from tests.support.waiting import eventually
from tests.telemetry.kept_runs import frames_with_steps, keep
from tnt_notebook.telemetry import archive, run_writer
from tnt_notebook.telemetry.run_reader import read
from tnt_notebook.warden import processes_of

#: The last frame on disk has the news of those that came too fast to be written, too.
LAST_FRAMES = """
from tnt_notebook.telemetry.frame import news
last, kept = mine.frames[-1], trace.frames[-1]
print(len(mine.frames), all(kept[name] == last[name] for name in {*last} - {*news(last)}))
"""


@pytest.fixture(autouse=True)
def base(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Runs of one test."""
    monkeypatch.setenv("TNT_RUNS_DIR", str(tmp_path / "runs"))
    monkeypatch.chdir(tmp_path)
    return tmp_path / "runs"


def test_listed_shown_exported_compared_and_removed(shell, base):
    assert typed(shell, "%tnt_trace list") == f"no run is kept in {base}\n"
    nothing = typed(shell, "%tnt_trace show")
    assert nothing.startswith("TraceError: No run is kept in ") and nothing.count("\n") == 1
    first, second = keep(frames_with_steps(4), "digits"), keep(frames_with_steps(2), "faces")

    table = typed(shell, "%tnt_trace list").splitlines()
    assert re.split("  +", table[0].strip()) == [
        *("id", "title", "ranks", "began", "state", "took", "samples/s while training", "size")
    ]
    cells = table[1].split()
    assert (cells[0], cells[1], cells[2], cells[5], cells[6]) == (
        *(first.name, "digits", "4", "finished", "0:08"),
    )
    assert table[2].startswith(second.name) and table[3].startswith("2 runs, ")

    shown = typed(shell, "%tnt_trace show digits")
    assert shown.startswith("digits · finished in 0:08 · 3 epochs on 4 ranks")
    assert shell.user_ns["trace"].title == "digits" and len(shell.user_ns["trace"].steps) > 5
    assert typed(shell, "%tnt_trace show --name last").startswith("faces · finished")
    assert shell.user_ns["last"].title == "faces"

    said = typed(shell, "%tnt_trace export digits --to run.json")
    assert re.fullmatch(r"wrote run.json, [\d.]+ [KM]B: open it in https://ui.perfetto.dev\n", said)
    assert json.loads(Path("run.json").read_text())["otherData"]["title"] == "digits"
    assert typed(shell, "%tnt_trace export --to run.csv").startswith("wrote run.csv, ")
    assert Path("run.csv").read_text().startswith("step,rank,kind,what,")
    typed(shell, "%tnt_trace export")
    assert Path(f"{second.name}.json").is_file()
    assert "the name ends in .json" in typed(shell, "%tnt_trace export --to run.txt")
    assert "TraceError: no/run.json cannot be written: No such file" in typed(
        shell, "%tnt_trace export --to no/run.json"
    )

    assert typed(shell, "%tnt_trace compare digits faces") == (
        "Figure: digits, faces beside each other.\n"
    )
    assert [trace.title for trace in shell.user_ns["trace"]] == ["digits", "faces"]

    assert typed(shell, "%tnt_trace remove digits").startswith("1 run removed, ")
    assert [run.folder for run in archive.listed()] == [second]
    typed(shell, "%tnt_trace remove --all")
    assert archive.listed() == []


def test_of_many_runs_the_latest_are_listed(shell):
    frames = frames_with_steps(until=2)
    for i in range(25):
        keep(frames, f"run {i}")
    table = typed(shell, "%tnt_trace list").splitlines()
    assert len(table) == 22 and table[-1].endswith("; 5 older: %tnt_trace list --all")
    assert len(typed(shell, "%tnt_trace list --all").splitlines()) == 27


def test_damaged_runs_are_told_in_a_sentence(shell):
    folder = keep(frames_with_steps())
    (folder / "frames-0.jsonl").write_text("{}\n")
    said = typed(shell, "%tnt_trace show")
    assert said == f"TraceError: {folder}/frames-0.jsonl, line 1: a frame without 'v'.\n"
    (folder / "run.json").write_text("?")
    assert "damaged" in typed(shell, "%tnt_trace list")


def test_ids_complete(shell):
    first, second = keep(frames_with_steps(until=2), "a"), keep(frames_with_steps(until=2), "b")
    ids = sorted([first.name, second.name])
    assert completed(shell, "%tnt_trace sh") == ["show"]
    assert completed(shell, f"%tnt_trace show {first.name[:4]}") == ids
    assert completed(shell, f"%tnt_trace compare {first.name} {second.name[:9]}") == [second.name]
    assert completed(shell, "%tnt_trace export --t") == ["--to"]
    assert completed(shell, "%tnt_trace list 2") == []


def test_a_run_that_goes_on_elsewhere_is_followed_to_its_end(shell):
    frames = frames_with_steps()
    writer = run_writer.begin("digits", 2)
    for frame in frames[:5]:
        writer.write(frame)
    said = typed(shell, "%tnt_trace show")
    assert said.startswith(
        "digits: live view of 2 ranks\nIt can only be stopped where it was started"
    )
    assert shell.user_ns["trace"].frames[-1] == frames[4]
    following = follower()
    for frame in frames[5:]:
        writer.write(frame)
    writer.close()
    following.join(60)
    assert not following.is_alive()


def test_unloading_ends_what_follows(shell):
    writer = run_writer.begin("digits", 2)
    writer.write(frames_with_steps()[0])
    typed(shell, "%tnt_trace show")
    following = follower()
    shell.run_line_magic("unload_ext", "tnt_notebook")
    following.join(60)
    assert not following.is_alive()
    writer.close()
    shell.run_line_magic("load_ext", "tnt_notebook")


def follower() -> threading.Thread:
    """The thread that follows a run."""
    (found,) = [t for t in threading.enumerate() if t.name.startswith("tnt-follow")]
    return found


def test_a_notebook_shows_its_last_run_and_those_of_others(notebook):
    notebook.run("%%tnt_fit --wait --name mine" + TRAIN.format(epochs=3))
    keep(frames_with_steps(), "of another notebook")
    messages = notebook.messages_until(notebook.begin("%tnt_trace show"), ended)
    rich = [m["content"]["data"] for m in messages if m["msg_type"] == "display_data"]
    assert rich[0]["text/plain"].startswith("mine · finished in ") and PLOTLY in rich[1]
    assert (
        notebook.run("print(mine.folder.name in trace.__repr__(), trace.title)") == "False mine\n"
    )
    frames = notebook.run(LAST_FRAMES).split()
    assert int(frames[0]) >= 4 and frames[1] == "True"
    name = notebook.run("print(mine.save_trace())").strip()
    assert Path(name).name.startswith("mine-2") and json.loads(Path(name).read_text())
    assert notebook.run("print(mine.save_trace())").strip() != name
    figure = "from plotly.graph_objects import Figure\nprint(isinstance({}, Figure))"
    for plot in ("mine.plot_throughput()", "mine.trace.compare(trace)", "mine.trace.plot()"):
        assert notebook.run(figure.format(plot)) == "True\n"


def test_a_killed_kernel_leaves_the_frames_of_its_run(own_notebook):
    notebook = own_notebook
    notebook.run("%%tnt_fit --name long" + TRAIN.format(epochs=1_000_000))
    eventually(lambda: any(len(read(run.folder)) > 3 for run in archive.listed()))
    (run,) = archive.listed()
    assert (run.state, run.title, run.ranks) == ("running", "long", 2)
    marker = cluster_id(notebook)
    os.kill(notebook.manager.provisioner.process.pid, signal.SIGKILL)
    before = len(read(run.folder))
    eventually(lambda: len(read(run.folder)) > before + 3, 20)  # it goes on without its kernel
    for pid in processes_of(marker):
        os.kill(pid, signal.SIGKILL)
    eventually(lambda: archive.about(run.folder).state != "running")
    assert archive.about(run.folder).state == "ended without a word"
    frames = read(run.folder)
    assert len(frames) > 3 and frames[-1]["state"] == "running" and frames[-1]["step"] > 0
    assert archive.about(run.folder).seconds == frames[-1]["elapsed"]


def test_a_new_kernel_follows_a_run_of_another(notebook, shell):
    notebook.run("%%tnt_fit --name long" + TRAIN.format(epochs=1_000_000))
    eventually(lambda: archive.listed())
    assert typed(shell, "%tnt_trace show") == "long: live view of 2 ranks\n"
    following = follower()
    assert "running" in typed(shell, "%tnt_trace list")
    assert "still runs, and is kept" in typed(shell, "%tnt_trace remove last")
    archive.request_stop(archive.find())  # what the Stop button does
    following.join(60)
    assert not following.is_alive()
    assert archive.find().state == "stopped"
    assert notebook.run("print(long.wait().state)") == "stopped\n"


def test_a_rank_that_dies_leaves_its_frames_and_the_reason(notebook):
    notebook.run("%%tnt_fit --name long" + TRAIN.format(epochs=1_000_000))
    eventually(lambda: any(len(read(run.folder)) > 3 for run in archive.listed()))
    notebook.run("from tnt_notebook.magics import sessions")
    notebook.run("pid = sessions[get_ipython()].cluster.status()[1].pid")
    notebook.run("import os, signal; os.kill(pid, signal.SIGKILL)")
    notebook.run("%%tnt --ranks 0\n1")  # waits for the fit, and so for its end
    # The ranks say that it has failed, and the notebook, after them, why.
    eventually(lambda: "died" in archive.find().error)
    assert archive.find().state == "failed"
    told, said = notebook.run("%tnt_trace show").split("\n", 1)
    assert told.startswith("long has failed: rank 1 died on ")
    assert said.startswith("long · failed after ") and "died" in said
    assert "2 ranks are ready" in notebook.run("%tnt_cluster restart --missing")


def test_a_folder_that_cannot_be_written_is_said_once_and_training_goes_on(notebook):
    notebook.run("import os; os.environ['TNT_RUNS_DIR'] = '/proc/nowhere'")
    cell = notebook.begin("%%tnt_fit --wait --name fit" + TRAIN.format(epochs=3))
    said = shown(notebook.messages_until(cell, ended))
    assert said.count("The trace of this run cannot be kept in /proc/nowhere/") == 1
    assert "fit · finished" in said
    assert notebook.run("print(len(fit.history['loss']), len(fit.trace.frames) > 2)") == "3 True\n"
