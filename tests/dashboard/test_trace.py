"""A run to look at: its figures, its boxes as a table, its export."""

import csv
import json
import sys

import pytest

from tests.dashboard.runs import frames_of_a_run, frames_of_an_evaluation
from tests.dashboard.steps import step_of_a_pipeline
from tests.telemetry.by_hand import step_of
from tests.telemetry.kept_runs import STEP, frames_with_steps, keep
from tnt_notebook.dashboard.figures.figures import run_figure
from tnt_notebook.dashboard.reports.trace import Trace
from tnt_notebook.errors import TraceError
from tnt_notebook.telemetry.step_trace import Box

BOXES = [
    Box(0, "F", 0, 0, 0.0, 0.5),
    Box(0, "S", 1, 0, 0.5, 0.75),
    Box(1, "R", 0, 0, 0.0, 0.75),
    Box(1, "B", 1, 0, 0.75, 2.0),
]


def by_hand() -> Trace:
    frames = frames_of_a_run(start=10.0)
    for frame, time in zip(frames[:2], (12.0, 15.0), strict=True):
        frame["step_trace"] = step_of(*BOXES, time=time)
    return Trace(frames, "by hand")


def test_the_table_has_a_row_for_each_box():
    table = by_hand().to_pandas()
    names = "step rank kind what stage number begin_s end_s duration_s"
    assert list(table.columns) == names.split() and len(table) == 8
    assert list(table.iloc[1])[:6] == [0, 0, "S", "send", 1, 0]
    assert list(table.iloc[1])[6:] == pytest.approx([2.5, 2.75, 0.25])
    last = table.iloc[-1]
    assert (last.step, last["rank"], last.what) == (1, 1, "backward")
    assert (last.begin_s, last.end_s) == pytest.approx((5.75, 7.0))
    assert dict(table[table.step == 0].groupby("what").duration_s.sum()) == pytest.approx(
        {"forward": 0.5, "send": 0.25, "wait for a message": 0.75, "backward": 1.25}
    )


def test_without_pandas_it_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(TraceError, match="pip install pandas"):
        by_hand().to_pandas()


def test_saved_as_a_table(tmp_path):
    path = by_hand().save(tmp_path / "boxes.csv")
    with open(path, newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 8
    assert rows[1] == {
        "step": "0", "rank": "0", "kind": "S", "what": "send", "stage": "1", "number": "0",
        "begin_s": "2.500000000", "end_s": "2.750000000", "duration_s": "0.250000000",
    }  # fmt: skip


def test_saved_for_perfetto(tmp_path):
    path = by_hand().save(str(tmp_path / "run.json"))
    trace = json.loads(path.read_text())
    assert trace["otherData"] == {"title": "by hand", "began": 10.0, "ranks": 2}
    assert sum(event["ph"] == "X" for event in trace["traceEvents"]) == 8


def test_a_kept_run_is_opened_by_its_id_or_its_folder(runs_folder):
    frames = frames_with_steps()
    folder = keep(frames, "opened")
    for name in (folder, str(folder), folder.name, folder.name[-4:]):
        trace = Trace.open(name)
        assert (trace.title, trace.frames[-1]) == ("opened", frames[-1])
    with pytest.raises(TraceError, match="is not the folder of a run"):
        Trace.open(runs_folder / "nothing")


def test_a_timeline_of_any_step():
    trace = by_hand()
    assert [step["time"] for step in trace.steps] == [12.0, 15.0]
    idle, forward, backward, wait, send = trace.plot_timeline(0).data
    names = [bar.name for bar in (idle, forward, backward, wait, send)]
    assert names == ["idle", "forward", "backward", "wait for a message", "send"]
    assert (forward.base[0], forward.x[0], backward.base[0]) == (0, 0.5, 0.75)
    assert "rank 0 is idle for 75% of a step" in idle.hovertemplate[0]
    # Messages have a row of their own beneath.
    assert send.offset >= forward.offset + forward.width
    assert "idle for 56%" in trace.plot_timeline().layout.annotations[0].text
    for step in (2, -3):
        with pytest.raises(TraceError, match=f"has no step {step}: 2 steps were looked at"):
            trace.plot_timeline(step)


def test_of_little_there_is_little_to_see():
    with pytest.raises(TraceError, match="x has reported nothing yet"):
        Trace([], "x").plot_throughput()
    with pytest.raises(TraceError, match="run has no breakdown"):
        Trace(frames_of_a_run()).plot_breakdown()
    assert repr(Trace([], "x")) == "<Trace of x: 0 frames in 0 s, 0 steps>"
    assert Trace([]).to_pandas().empty


def test_throughput_and_breakdown_of_the_fit():
    frames = frames_with_steps() + frames_of_an_evaluation()
    trace = Trace(frames)
    drawn = trace.plot_throughput().data
    assert [line.name for line in drawn] == ["all"]
    assert drawn[0].x[-1] == round(frames[-7]["elapsed"], 2)
    assert trace.plot_breakdown().data[1].x[0] == pytest.approx(8)


def size(figure) -> int:
    return len(json.dumps(figure.to_plotly_json(), allow_nan=False))


def test_all_that_stays_of_a_run_is_small():
    frames = frames_of_a_run(64, epochs=10, steps=200, metrics=("a", "b"), breakdown=(STEP,) * 64)
    for step in (
        step_of_a_pipeline("1f1b", 64, 16, around=True, message=1e-4),
        step_of_a_pipeline("zb-v", 64, 128, around=True, message=1e-4),
        step_of_a_pipeline("1f1b", 8, 64, around=True, message=1e-4),
    ):
        frames[-1]["step_trace"] = step
        trace = Trace(frames)
        assert size(trace.plot_timeline()) < 300_000
        assert size(run_figure(frames)) < 500_000
        assert size(trace.compare(trace, trace)) < 300_000


def test_what_stays_has_a_panel_for_all_that_is_known():
    whole = run_figure(frames_with_steps(4))
    titles = [note.text for note in whole.layout.annotations]
    step, parts = (title.split("<br>")[0] for title in titles[3:])
    assert step.startswith("<b>the last step</b>: ")
    assert parts == "<b>where a step goes</b> on 4 ranks"
    names = [trace.name for trace in whole.data]
    assert {"loss", "val_loss", "all", "forward", "send", "idle", "exchange"} < set(names)
    axes = {trace.name: trace.yaxis for trace in whole.data}
    assert axes["forward"] == axes["send"] != axes["exchange"] == axes["work"] != axes["all"]
    assert len(run_figure(frames_of_a_run(4)).layout.annotations) == 3


def test_runs_beside_each_other():
    quick = frames_of_a_run(breakdown=(STEP, STEP._replace(work=0.010)))
    staged = frames_with_steps(2)
    figure = Trace(quick, "fit").compare(Trace(staged, "fit"), Trace(quick, "other"))
    lines = {trace.name: trace for trace in figure.data if trace.type == "scatter"}
    assert set(lines) == {"fit 1", "fit 2", "other", "by the formula"}
    # Samples that both ranks of a pipeline work on count once.
    assert lines["fit 1"].y[0] == 2 * lines["fit 2"].y[0]
    bars = {trace.name: trace for trace in figure.data if trace.type == "bar"}
    assert list(bars["work"].y) == ["fit 1", "fit 2", "other"]
    assert list(bars["work"].x) == pytest.approx([9, 8, 9])
    assert bars["idle"].x[0] is None and 0 < bars["idle"].x[1] < 100
    assert lines["by the formula"].x[1] == pytest.approx(20, abs=1e-6)
