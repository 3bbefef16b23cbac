"""Which runs there are, and how they ended."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.dashboard.runs import frames_of_a_run, frames_of_an_evaluation
from tests.telemetry.kept_runs import keep
from tnt_notebook import telemetry
from tnt_notebook.errors import TraceError
from tnt_notebook.telemetry import archive, run_folder, run_writer
from tnt_notebook.telemetry.kept_ribbon import Known, Mark, ribbon_of
from tnt_notebook.telemetry.run_reader import read


@pytest.fixture(autouse=True)
def base(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("TNT_RUNS_DIR", str(tmp_path / "runs"))
    return tmp_path / "runs"


def test_a_list_says_what_each_run_was(base):
    assert archive.listed() == []
    with pytest.raises(TraceError, match=f"No run is kept in {base}"):
        archive.find()
    frames = frames_of_a_run(epochs=3, state="stopped", sharing=2)
    folder = keep(frames + frames_of_an_evaluation())
    (run,) = archive.listed()
    assert (run.id, run.folder, run.title, run.ranks) == (folder.name, folder, "MLP on digits", 2)
    assert (run.state, run.seconds) == ("stopped", frames[-1]["elapsed"])
    # 60 steps in 7 s have 32 samples each, which both ranks of a pipeline work on.
    assert run.samples_per_s == telemetry.samples_per_s(frames) == pytest.approx(60 * 32 / 7)
    assert run.size == sum(path.stat().st_size for path in folder.iterdir())
    assert time.time() - run.began < 60


def in_a_process(code: str) -> str:
    """What another process prints."""
    head = "from tests.telemetry.kept_runs import keep\nfrom tests.dashboard.runs import *\n"
    command = [sys.executable, "-c", head + code]
    return subprocess.check_output(command, text=True, cwd=Path(__file__).parents[2])


def test_a_run_whose_writer_lives_is_running():
    folder = keep(frames_of_a_run(until=10)[:-1], close=False)
    assert archive.about(folder).state == "running"
    assert archive.about(folder).seconds == read(folder)[-1]["elapsed"]


def test_a_run_whose_writer_was_killed_ended_without_a_word():
    code = "keep(frames_of_a_run()[:-1], close=False); import os; os._exit(9)"
    with pytest.raises(subprocess.CalledProcessError):
        in_a_process(code)
    (run,) = archive.listed()
    assert run.state == "ended without a word" and run.seconds > 5
    in_a_process("keep(frames_of_a_run(), close=False)")
    assert archive.listed()[-1].state == "finished"  # the last frame said so


def test_a_notebook_adds_what_it_knows_of_the_end():
    folder = keep(frames_of_a_run()[:-1], close=False)
    assert (archive.about(folder).state, archive.about(folder).error) == ("running", "")
    dead = Mark(ranks=[1], name="dead", at=7.0)
    known = Known(began=-2.0, ended=9.0, marks=[dead])
    archive.conclude(folder, "failed", "rank 1 died", known)
    run = archive.about(folder)
    assert (run.state, run.error, run.seconds) == ("failed", "rank 1 died", 11.0)
    assert run.samples_per_s > 0
    ribbon = ribbon_of(read(folder), run.known)
    assert (ribbon.seconds, ribbon.ranks[1].doing, ribbon.ranks[1].begins) == (11.0, "d", [7.0])
    archive.conclude(folder / "gone", "failed", "", known)


def say(folder: Path, **more: object) -> None:
    """Has the folder of a run say something else about it."""
    file = folder / run_folder.ABOUT
    file.write_text(json.dumps(json.loads(file.read_text()) | more))


def test_a_pid_that_another_process_has_now_is_not_the_writer():
    folder = keep(frames_of_a_run()[:-1], close=False)
    say(folder, pid_began=0.0)
    assert archive.about(folder).state == "ended without a word"


def test_a_writer_on_another_host_is_known_by_what_it_writes():
    folder = keep(frames_of_a_run()[:-1], close=False)
    say(folder, host="elsewhere")
    assert archive.about(folder).state == "running"
    os.utime(run_folder.part(folder, 0), (time.time() - 3600,) * 2)
    assert archive.about(folder).state == "ended without a word"


def test_runs_are_found_by_a_part_of_their_id():
    first, second = keep(frames_of_a_run(), "digits"), keep(frames_of_a_run(), "faces")
    assert archive.find("last").folder == second
    assert archive.find(first.name).folder == first
    assert archive.find("digits").folder == archive.find(first.name[-4:]).folder == first
    with pytest.raises(TraceError, match="'2' matches 2 runs: "):
        archive.find("2")
    with pytest.raises(TraceError, match="No run 'x-files' is kept"):
        archive.find("x-files")


def test_the_oldest_runs_make_room(base):
    folders = [keep(frames_of_a_run(), f"run {i}") for i in range(4)]
    running = keep(frames_of_a_run()[:-1], "running", close=False)
    size = archive.about(folders[0]).size
    archive.new_folder("next", total_bytes=int(3.5 * size))
    assert [run.folder for run in archive.listed()] == [*folders[2:], running]
    archive.new_folder("next", total_bytes=0)
    assert [run.folder for run in archive.listed()] == [running]


def test_what_is_no_run_stays(base):
    folder = keep(frames_of_a_run())
    (folder / "notes.txt").write_text("mine")
    (base / "notes").mkdir()
    (base / "notes.txt").write_text("mine")
    archive.bound(0)
    left = [path.name for path in base.rglob("*")]
    assert sorted(left) == [folder.name, "notes", "notes.txt", "notes.txt"]


def test_a_damaged_run_is_listed_and_can_be_removed():
    folder = keep(frames_of_a_run())
    wrong = '{"state": "finished", "title": "x", "ranks": []}'
    for broken in ("", "{}", "[]", '{"title": 1}', wrong):
        (folder / run_folder.ABOUT).write_text(broken)
        (run,) = archive.listed()
        assert (run.id, run.state) == (folder.name, "damaged")
    archive.remove(run)
    assert archive.listed() == []


def test_two_notebooks_write_side_by_side(base):
    code = "for _ in range(5): keep(frames_of_a_run(), 'fit')"
    command = [sys.executable, "-c", f"from tests.telemetry.kept_runs import *\n{code}"]
    both = [subprocess.Popen(command, cwd=Path(__file__).parents[2]) for _ in range(2)]
    assert [process.wait(60) for process in both] == [0, 0]
    runs = archive.listed()
    assert len(runs) == 10 and {run.state for run in runs} == {"finished"}
    assert {len(read(run.folder)) for run in runs} == {len(read(runs[0].folder))}


def test_a_full_disk_is_an_error_and_leaves_what_was_written():
    said = in_a_process(
        "import resource\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (5000, 5000))\n"
        "try: keep(frames_of_a_run(epochs=40))\n"
        "except OSError as error: print(error.strerror)"
    )
    assert said == "File too large\n"
    (run,) = archive.listed()
    frames = read(run.folder)
    assert len(frames) > 5 and run.seconds == frames[-1]["elapsed"]
    assert run.state == "ended without a word"


def test_a_thousand_runs_are_listed_quickly():
    line = json.dumps(frames_of_a_run(ranks=64)[-1]).encode() + b"\n"
    for i in range(1000):
        writer = run_writer.begin(f"fit {i}", 64)
        run_folder.part(writer.folder, 0).write_bytes(50 * line)
        writer._main = json.loads(line)
        writer.close()
    began = time.monotonic()
    assert len(archive.listed()) == 1000
    assert time.monotonic() - began < 2
