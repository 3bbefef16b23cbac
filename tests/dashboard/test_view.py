"""The life of the live view, where there is no browser: in this process, a kernel, a terminal."""

import itertools
import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

from tests.dashboard.runs import frames_of_a_run, frames_of_an_evaluation
from tests.dashboard.steps import step_of_a_pipeline
from tnt_notebook import telemetry
from tnt_notebook.dashboard import LiveView
from tnt_notebook.dashboard.card import view
from tnt_notebook.dashboard.figures.wording import short_time
from tnt_notebook.telemetry import Frame, State
from tnt_notebook.telemetry.activities import Activities
from tnt_notebook.telemetry.meters import Readings
from tnt_notebook.telemetry.pace import TOLD_S, slower

PACKAGE = Path(view.__file__).parents[3]
TESTS = Path(__file__).parents[2]

CELL = """\
import threading
from tests.dashboard.runs import frames_of_a_run
from tnt_notebook.dashboard import LiveView

view = LiveView("MLP", 2, on_stop=print)
view.show()

def drive():
    for frame in frames_of_a_run():
        view.update(frame)
    view.finish("finished")

thread = threading.Thread(target=drive)
thread.start()
thread.join()
"""


@pytest.fixture
def environment(tmp_path):
    """What a fresh process needs to find the package and these tests, and nothing of the user's."""
    path = [str(PACKAGE), str(TESTS), os.environ.get("PYTHONPATH", "")]
    own = {"PYTHONPATH": os.pathsep.join(filter(None, path)), "IPYTHONDIR": str(tmp_path)}
    return {**os.environ, **own}


def view_of(*frames: Frame, end: State | None = "finished") -> LiveView:
    """A view of two ranks that has seen these frames."""
    live = LiveView("MLP", 2, on_stop=print)
    for frame in frames:
        live.update(frame)
    if end:
        live.finish(end)
    return live


def executed(cell, environment):
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell)])
    NotebookClient(notebook, timeout=180, kernel_name="python3").execute(env=environment)
    return notebook


def test_an_executed_notebook_keeps_summary_and_figure_and_no_widget(environment):
    notebook = executed(CELL, environment)
    assert len(str(notebook.metadata.get("widgets"))) < 10_000  # no code, no styles
    summary, figure = notebook.cells[0].outputs
    assert set(summary.data) == {"text/html", "text/plain"}
    assert summary.data["text/plain"].startswith("MLP · finished in 0:0")
    assert set(figure.data) == {"application/vnd.plotly.v1+json", "text/plain"}
    assert len(figure.data["application/vnd.plotly.v1+json"]["data"]) == 4
    assert sum(len(str(output)) for output in (summary, figure)) < 200_000


def test_a_run_that_failed_at_once_keeps_its_error_and_no_figure(environment):
    finish = 'view.finish("failed", "rank 1 raised <ValueError>", "line 2 of <module>")'
    summary, figure = executed(CELL.split("def drive")[0] + finish, environment).cells[0].outputs
    text, html = summary.data["text/plain"], summary.data["text/html"]
    assert "rank 1 raised <ValueError>" in text and "line 2 of <module>" in text
    assert "rank 1 raised &lt;ValueError&gt;" in html
    assert "<summary>Traceback</summary><pre>line 2 of &lt;module&gt;</pre></details>" in html
    assert set(figure.data) == {"text/html", "text/plain"}


def test_a_terminal_prints_one_line_and_the_summary(environment):
    command = [sys.executable, "-m", "IPython", "--no-banner", "--colors=NoColor", "-c", CELL]
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=180, check=True
    )
    lines = done.stdout.splitlines()
    assert lines[0] == "MLP: live view of 2 ranks"
    assert lines[1].startswith("MLP · finished in 0:0")
    assert lines[1].endswith(" · 3 epochs on 2 ranks")
    assert ["all", "549", "3,840"] in [line.split() for line in lines]


def test_stop_is_asked_for_once_and_shows_and_after_the_end_it_asks_for_nothing():
    asked = []
    live = LiveView("MLP", 2, on_stop=lambda: asked.append(live._card.state))
    live.update(frames_of_a_run()[0])
    live._card.stop_requested = True  # what the button does
    live._card.stop_requested = True
    assert asked == ["stopping"]
    over = LiveView("MLP", 2, on_stop=lambda: asked.append("stop"))
    over.finish("finished")
    over._card.stop_requested = True
    assert asked == ["stopping"] and over._card.state == "finished"


def test_the_last_frame_is_shown_however_fast_they_came():
    frames = frames_of_a_run()
    live = LiveView("MLP", 2, on_stop=print)
    thread = threading.Thread(target=lambda: [live.update(frame) for frame in frames])
    thread.start()
    thread.join()
    live.finish("finished")
    assert live._card.frame["seq"] == frames[-1]["seq"]
    assert live._card.rows == [pytest.approx(row, rel=1e-5) for row in frames[-1]["rows"]]
    assert live.frames == frames


def test_epochs_and_a_step_survive_a_frame_that_was_dropped_on_the_way():
    frames = frames_of_a_run(until=24)[:-1]
    assert "rows" not in frames[-1]
    frames[3]["step_trace"] = step_of_a_pipeline()
    card = view_of(*frames, end="stopped")._card
    assert [row["epoch"] for row in card.rows] == [1]
    assert card.timeline["measured"] == step_of_a_pipeline()
    assert card.timeline["heading"].endswith("by the formula of 1f1b 27%")


@pytest.mark.parametrize("ranks", [1, 64, 256, 1024])
def test_frames_of_any_number_of_ranks_are_below_8_kb_a_second(ranks):
    live = LiveView("MLP", ranks, on_stop=print)
    live.update(frames_of_a_run(ranks)[5])
    frame = live._card.get_state(["frame"])
    header = 600  # of a message of Jupyter's
    assert (header + len(json.dumps(frame))) / (TOLD_S * slower(ranks)) < 8_000


def test_save_says_where_the_trace_is_or_why_not():
    live = LiveView("MLP", 2, on_stop=print, on_save=lambda: "runs/1/trace.json")
    assert live._card.can_save
    live._card.save_requested += 1  # what the button does
    assert live._card.saved == "saved: runs/1/trace.json"
    full = LiveView("MLP", 2, on_stop=print, on_save=lambda: 1 / 0)
    full._card.save_requested += 1
    assert full._card.saved == "not saved: division by zero"
    assert not LiveView("MLP", 2, on_stop=print)._card.can_save


def test_after_the_end_nothing_changes():
    frames = frames_of_a_run()
    live = view_of(frames[0], end=None)
    live.finish("failed", "rank 0 died", "x" * 100_000)
    live.update(frames[1])
    live.finish("finished")
    assert (live._card.state, live._card.error) == ("failed", "rank 0 died")
    assert len(live._card.traceback) < 13_000
    assert live.frames == frames[:1]


def test_a_very_long_run_is_kept_within_bounds(monkeypatch):
    monkeypatch.setattr(view, "MAX_FRAMES", 50)
    frames = frames_of_a_run(steps=500)
    kept = view_of(*frames, end=None).frames
    assert 20 < len(kept) <= 50
    assert (kept[0], kept[-1]) == (frames[0], frames[-1])


def test_an_evaluation_after_the_fit_is_drawn_behind_it():
    evaluation = frames_of_an_evaluation()
    card = view_of(*frames_of_a_run(), *evaluation)._card
    assert card.frame["phase"] == "evaluate"
    assert {point["start"] for point in card.history} == {0.0, evaluation[0]["start"]}
    assert card.rows == []


def test_a_person_looks_at_a_step_of_before_and_at_the_latest_again():
    frames = frames_of_a_run()
    lengths = (2e-4, 9e-4, 4e-4)
    for frame, message in zip(frames[2:7:2], lengths, strict=True):
        frame["step_trace"] = step_of_a_pipeline(message=message) | {"time": frame["time"]}
        frame["breakdown"], frame["step_s"] = [[0.0, message, 0.0, 0.0, 0.0, 0.0]] * 2, message
    steps = [frames[i]["step_trace"] for i in (2, 4, 6)]
    live = view_of(*frames, end=None)
    card = live._card
    for look, shown in (
        ({"which": "slowest"}, 1), ({"which": "median"}, 2), ({"which": "live"}, 2),
        ({"which": "at", "seconds": steps[0]["time"] - live._ribbon.began}, 0),
    ):  # fmt: skip
        card.look = look  # what buttons and the playhead do
        assert card.timeline["measured"] == steps[shown]
        live_now = look["which"] == "live"  # then all of them are shown
        assert short_time(lengths[2 if live_now else shown]) in card.time["step"]
        assert live_now == card.time["step"].startswith("549 samples/s while training")
    frames[-1]["step_trace"] = steps[1]
    live.update(frames[-1])
    live._to_browser.flush()
    assert card.timeline["measured"] == steps[0]  # until the person says otherwise


def test_the_sentence_of_the_run_names_no_step_while_it_is_live():
    """It stands for seconds, and the step below it is another one by then."""
    frames = frames_of_a_run()
    frames[2]["step_s"] = 0.0123
    live = view_of(*frames[:5], end=None)
    begin = live._ribbon.began
    live.tell([Activities(rank=r, doing="t", begins=[begin - 9.0], seconds={}) for r in (0, 1)])
    live._to_browser.flush()
    assert live._card.time_summary == "9 s: training 9 s"
    live.finish("finished")
    assert "(median step 12.3 ms)" in live._card.left["summary"]["text/html"]


def test_ranks_that_have_died_are_seen_to_be_dead():
    live = LiveView("MLP", 2, on_stop=print)
    begin = live._ribbon.began
    live.tell([Activities(rank=r, doing="t", begins=[begin + 0.5], seconds={}) for r in (0, 1)])
    live.mark([1], "dead")
    live._to_browser.flush()
    assert [(rank, doing) for rank, doing, _ in live._card.ribbon["rows"]] == [(0, "t"), (1, "td")]


def test_memory_that_ends_is_said_as_long_as_it_does_and_in_what_stays():
    live = LiveView("MLP", 2, on_stop=print)
    at = int(live._ribbon.began)

    def told(second: int, **low: list[str]) -> Activities:
        meters = Readings(ranks=[1], at=[at + second], values={"m": [[900 + second]]}, **low)
        return Activities(rank=1, doing="", begins=[], seconds={}, meters=meters)

    for second, words in ((0, "Host a has 1 GB left."), (1, ""), (2, "Host a has 0 GB left.")):
        live.tell([told(second, low=[words])])
        live._to_browser.flush()
        assert live._card.low == words
    assert live._card.ribbon["meters"] == [(at + s, {"m": [None, 900 + s]}) for s in range(3)]
    live.finish("failed", "rank 1 died")
    assert "Host a has 0 GB left." in live._card.left["summary"]["text/html"]


def test_an_evaluation_within_a_fit_is_kept_and_not_drawn():
    live = view_of(*frames_of_a_run()[:-1], *frames_of_an_evaluation())
    assert live._card.frame["phase"] == "fit"
    assert live.frames[-1]["phase"] == "evaluate"


def test_a_cell_that_predicts_in_a_loop_keeps_its_fit():
    fit = frames_of_a_run()
    loop = [frames_of_an_evaluation(start=100.0 + number) for number in range(50)]
    kept = view_of(*fit, *itertools.chain(*loop), end=None).frames
    assert telemetry.main_run(kept) == fit
    assert len(telemetry.runs(kept)) == view.MAX_RUNS
    assert kept[-1]["start"] == 149.0
